# Sourced by ./quickstart, ./test and ./check: finds or gets Python and uv, then syncs the environment.
# Leaves `uv` as a shell function, so that a broken shim on PATH is never called.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

source scripts/common.sh

# A Python that is new enough: on PATH, or beside pyenv's shims (a shim itself may refuse to run).
find_python() {
  local candidate shims
  local candidates=(python3.13 python3.12 python3.14 python3)
  for shims in ${PATH//:/ }; do
    case $shims in */shims) candidates+=("${shims%/shims}"/versions/3.1[2-9]*/bin/python3) ;; esac
  done
  for candidate in "${candidates[@]}"; do
    if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 12))' 2>/dev/null; then
      "$candidate" -c 'import sys; print(sys.executable)'
      return
    fi
  done
}

get_uv() {
  local home="${XDG_CACHE_HOME:-$HOME/.cache}/benchflow/uv"
  if uv --version >/dev/null 2>&1; then UV=uv
  elif "$home/bin/uv" --version >/dev/null 2>&1; then UV="$home/bin/uv"
  else
    say "getting uv from PyPI"
    python3 -c 'import ensurepip, venv' 2>/dev/null || apt_install python3-venv || die "python3 has no venv module"
    rm -rf "$home"
    python3 -m venv "$home" && "$home/bin/pip" install -q --disable-pip-version-check uv || die "could not get uv from PyPI"
    UV="$home/bin/uv"
  fi
}

get_uv
PYTHON_FOUND=$(find_python)
# Without one, uv fetches an interpreter by itself where it is allowed to.
[ -z "$PYTHON_FOUND" ] || export UV_PYTHON="$PYTHON_FOUND"
export UV_SYSTEM_CERTS="${UV_SYSTEM_CERTS:-1}"
uv() { command "$UV" "$@"; }
uv sync --quiet --frozen || die "could not set up the Python environment"
