# Sourced by docker-engine and podman-engine: a Debian root file system and a Python over it, for machines where no
# image registry can be reached. The tar is also what the local sandbox is tested on.
set -euo pipefail

CACHE="${XDG_CACHE_HOME:-$HOME/.cache}/benchflow/test"
SUITE=bookworm
ROOTFS="$CACHE/$SUITE.tar"
BASE_IMAGE="${IMAGE_PREFIX:-}debian:bookworm-slim"
PYTHON_IMAGE="${IMAGE_PREFIX:-}python:3.12-slim"
CA_BUNDLE=/etc/ssl/certs/ca-certificates.crt
CA_VARIABLES=(SSL_CERT_FILE REQUESTS_CA_BUNDLE PIP_CERT CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS)
PULL_TIMEOUT="${PULL_TIMEOUT:-120}"
SOCKET_TIMEOUT="${SOCKET_TIMEOUT:-60}"

. "$(dirname "${BASH_SOURCE[0]}")/common.sh"

# One run at a time makes images: a second one waits and then finds them.
lock_cache() {
  mkdir -p "$CACHE"
  exec 9>"$CACHE/.lock"
  flock 9
}

extra_certificates() { compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; }

# Makes the root file system tar if it is not there: plain, as small as Debian's own slim image, with the machine's
# certificates, so that package registries behind a private authority work unchanged.
ensure_rootfs() {
  [ ! -s "$ROOTFS" ] || return 0
  apt_install mmdebstrap debian-archive-keyring
  say "making $ROOTFS with mmdebstrap (one to three minutes)"
  local hooks=() partial="$CACHE/.$SUITE.$$.tar"
  if extra_certificates; then
    hooks=(
      --customize-hook='mkdir -p "$1/usr/local/share/ca-certificates"'
      --customize-hook='cp /usr/local/share/ca-certificates/*.crt "$1/usr/local/share/ca-certificates/"'
      --customize-hook='chroot "$1" update-ca-certificates >/dev/null'
    )
  fi
  mmdebstrap --quiet --variant=minbase --include=ca-certificates \
    --dpkgopt='path-exclude=/usr/share/man/*' --dpkgopt='path-exclude=/usr/share/doc/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' "${hooks[@]}" "$SUITE" "$partial" \
    || { rm -f "$partial"; die "mmdebstrap could not make a root file system: is a Debian mirror reachable?"; }
  mv "$partial" "$ROOTFS"
}

# The lines that an import needs so that programs inside trust what the machine trusts.
import_changes() {
  printf -- '--change\nCMD ["bash"]\n--change\nENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n'
  if extra_certificates; then
    local variable
    for variable in "${CA_VARIABLES[@]}"; do printf -- '--change\nENV %s=%s\n' "$variable" "$CA_BUNDLE"; done
  fi
}

# ensure_base CLI...: the Debian image, pulled where a registry answers, else imported from the tar.
ensure_base() {
  "$@" image inspect "$BASE_IMAGE" >/dev/null 2>&1 && return 0
  # A registry's image would not trust the machine's own certificates, so it is no use beside them.
  if ! extra_certificates && timeout "$PULL_TIMEOUT" "$@" pull -q "$BASE_IMAGE" >/dev/null 2>&1; then
    say "pulled $BASE_IMAGE"
    return 0
  fi
  ensure_rootfs
  local changes
  mapfile -t changes < <(import_changes)
  say "importing $ROOTFS as $BASE_IMAGE"
  "$@" import "${changes[@]}" "$ROOTFS" "$BASE_IMAGE" >/dev/null || die "could not import $ROOTFS as $BASE_IMAGE"
}

# A Python 3.12 of this machine, outside any environment.
find_python312() {
  local candidate candidates=(python3.12 python3) shims
  for shims in ${PATH//:/ }; do
    case $shims in */shims) candidates+=("${shims%/shims}"/versions/3.12*/bin/python3) ;; esac
  done
  for candidate in "${candidates[@]}"; do
    "$candidate" -I -c 'import sys; sys.exit(sys.version_info[:2] != (3, 12))' 2>/dev/null || continue
    "$candidate" -I -c 'import os, sys; print(os.path.realpath(sys.base_prefix))'
    return 0
  done
  return 1
}

# ensure_python CLI...: the Python image, pulled, else this machine's interpreter laid over the Debian one.
ensure_python() {
  "$@" image inspect "$PYTHON_IMAGE" >/dev/null 2>&1 && return 0
  if ! extra_certificates && timeout "$PULL_TIMEOUT" "$@" pull -q "$PYTHON_IMAGE" >/dev/null 2>&1; then
    say "pulled $PYTHON_IMAGE"
    return 0
  fi
  local prefix context
  prefix=$(find_python312) || die "$PYTHON_IMAGE cannot be pulled, and no Python 3.12 of this machine can stand in for it"
  say "making $PYTHON_IMAGE from $prefix"
  context=$(mktemp -d)
  tar -C "$prefix" -cf "$context/python.tar" \
    --exclude='lib/python3.12/test' --exclude='lib/python3.12/idlelib' --exclude='lib/python3.12/site-packages' \
    --exclude='lib/python3.12/config-*' --exclude='__pycache__' --exclude='*.a' \
    bin/python3.12 lib/python3.12 $(cd "$prefix" && compgen -G 'lib/libpython3*' || true)
  # ensurepip gives the pip that belongs to this interpreter; the libraries are those its extension modules load.
  cat >"$context/Dockerfile" <<DOCKERFILE
FROM $BASE_IMAGE
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends libbz2-1.0 libexpat1 libffi8 \
    liblzma5 libncursesw6 libreadline8 libsqlite3-0 libssl3 libuuid1 zlib1g >/dev/null && rm -rf /var/lib/apt/lists/*
ADD python.tar /usr/local/
RUN ldconfig && ln -s python3.12 /usr/local/bin/python3 && ln -s python3.12 /usr/local/bin/python \
    && python3 -m ensurepip >/dev/null && ln -sf pip3 /usr/local/bin/pip && python3 -c 'import ssl, sqlite3, ctypes, lzma, bz2'
CMD ["python3"]
DOCKERFILE
  if ! DOCKER_BUILDKIT=0 "$@" build -t "$PYTHON_IMAGE" "$context" >"$context/log" 2>&1; then
    tail -20 "$context/log" >&2
    rm -rf "$context"
    die "could not make $PYTHON_IMAGE"
  fi
  rm -rf "$context"
}

# wait_for SOCKET LOG PID: until the daemon answers; dies with the end of its log when it does not.
wait_for() {
  local deadline=$((SECONDS + SOCKET_TIMEOUT))
  until curl -fsS --max-time 5 --unix-socket "$1" http://engine/_ping >/dev/null 2>&1; do
    if [ $SECONDS -ge $deadline ] || ! kill -0 "$3" 2>/dev/null; then
      tail -20 "$2" >&2
      die "the engine did not answer on $1 within ${SOCKET_TIMEOUT}s (its log: $2)"
    fi
    sleep 0.2
  done
}
