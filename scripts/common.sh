# Sourced by the other scripts: saying things, and getting packages from Debian.
say() { printf '==> %s\n' "$*" >&2; }
die() { printf 'error: %s\n' "$*" >&2; exit 1; }
as_root() { [ "$(id -u)" = 0 ]; }

# apt_install PACKAGE...: installs what is missing, as root on Debian or Ubuntu, and says so. Fails, with the command
# that would do it, where it cannot.
apt_install() {
  local missing=() package
  for package in "$@"; do
    dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  if ! command -v apt-get >/dev/null || ! as_root; then
    say "not installed: ${missing[*]} (as root on Debian or Ubuntu: apt-get install ${missing[*]})"
    return 1
  fi
  say "installing from Debian: ${missing[*]}"
  apt-get update -qq || say "apt-get update failed: trying the lists that are here"
  # RUNLEVEL=1 keeps a package from starting its own service: daemons are started by our scripts, with a log.
  DEBIAN_FRONTEND=noninteractive RUNLEVEL=1 apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null \
    || { say "apt-get could not install ${missing[*]}"; return 1; }
}
