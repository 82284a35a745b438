"""Which system calls a box may make: in effect what container engines allow by default.

The profile is data, grouped by what the calls are for. Calls in `ALLOWED` work, calls in `REFUSED` fail with
EPERM, and anything else (also calls that do not exist yet) fails with ENOSYS, so that libraries fall back to
older ways. Compiled once on the host by libseccomp; the program is loaded by every command before it starts.
"""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from functools import cache

ALLOWED = {
    "files": """
        access chdir chmod chown chown32 chroot close close_range copy_file_range creat dup dup2 dup3 faccessat
        faccessat2 fadvise64 fadvise64_64 fallocate fanotify_mark fchdir fchmod fchmodat fchmodat2 fchown fchown32
        fchownat fcntl fcntl64 fdatasync fgetxattr flistxattr flock fremovexattr fsetxattr fstat fstat64 fstatat64
        fstatfs fstatfs64 fsync ftruncate ftruncate64 futimesat getcwd getdents getdents64 getxattr getxattrat
        inotify_add_watch inotify_init inotify_init1 inotify_rm_watch ioctl lchown lchown32 lgetxattr link linkat
        listmount listxattr listxattrat llistxattr _llseek lremovexattr lseek lsetxattr lstat lstat64 mkdir mkdirat
        mknod mknodat name_to_handle_at newfstatat open openat openat2 pread64 preadv preadv2 pwrite64 pwritev
        pwritev2 read readahead readlink readlinkat readv removexattr removexattrat rename renameat renameat2 rmdir
        sendfile sendfile64 setxattr setxattrat splice stat stat64 statfs statfs64 statmount statx symlink symlinkat
        sync sync_file_range sync_file_range2 arm_sync_file_range syncfs tee truncate truncate64 umask unlink
        unlinkat utime utimensat utimensat_time64 utimes vmsplice write writev arm_fadvise64_64
    """,
    "waiting": """
        epoll_create epoll_create1 epoll_ctl epoll_ctl_old epoll_pwait epoll_pwait2 epoll_wait epoll_wait_old
        eventfd eventfd2 io_cancel io_destroy io_getevents io_pgetevents io_pgetevents_time64 io_setup io_submit
        _newselect pause pipe pipe2 poll ppoll ppoll_time64 pselect6 pselect6_time64 select signalfd signalfd4
    """,
    "memory": """
        brk cachestat madvise map_shadow_stack membarrier memfd_create memfd_secret mincore mlock mlock2 mlockall
        mmap mmap2 mprotect mremap mseal msync munlock munlockall munmap pkey_alloc pkey_free pkey_mprotect
        remap_file_pages
    """,
    "processes": """
        arch_prctl capget capset execve execveat exit exit_group fork getcpu getegid getegid32 geteuid geteuid32
        getgid getgid32 getgroups getgroups32 getpgid getpgrp getpid getppid getpriority getresgid getresgid32
        getresuid getresuid32 getrlimit get_robust_list getrusage getsid get_thread_area gettid getuid getuid32
        ioprio_get ioprio_set kill landlock_add_rule landlock_create_ruleset landlock_restrict_self lsm_get_self_attr
        lsm_list_modules lsm_set_self_attr modify_ldt pidfd_open pidfd_send_signal prctl prlimit64 process_mrelease
        process_vm_readv process_vm_writev ptrace riscv_flush_icache riscv_hwprobe rseq sched_getaffinity
        sched_getattr sched_getparam sched_get_priority_max sched_get_priority_min sched_getscheduler
        sched_rr_get_interval sched_rr_get_interval_time64 sched_setaffinity sched_setattr sched_setparam
        sched_setscheduler sched_yield seccomp setfsgid setfsgid32 setfsuid setfsuid32 setgid setgid32 setgroups
        setgroups32 setpgid setpriority setregid setregid32 setresgid setresgid32 setresuid setresuid32 setreuid
        setreuid32 setrlimit set_robust_list setsid set_thread_area set_tid_address set_tls setuid setuid32 sysinfo
        times ugetrlimit uname vfork wait4 waitid waitpid breakpoint cacheflush
    """,
    "signals": """
        restart_syscall rt_sigaction rt_sigpending rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend
        rt_sigtimedwait rt_sigtimedwait_time64 rt_tgsigqueueinfo sigaltstack sigprocmask sigreturn tgkill tkill
    """,
    "time": """
        adjtimex alarm clock_adjtime clock_adjtime64 clock_getres clock_getres_time64 clock_gettime clock_gettime64
        clock_nanosleep clock_nanosleep_time64 getitimer gettimeofday nanosleep setitimer time timer_create
        timer_delete timerfd_create timerfd_gettime timerfd_gettime64 timerfd_settime timerfd_settime64
        timer_getoverrun timer_gettime timer_gettime64 timer_settime timer_settime64
    """,
    "synchronisation": """
        futex futex_requeue futex_time64 futex_wait futex_waitv futex_wake ipc mq_getsetattr mq_notify mq_open
        mq_timedreceive mq_timedreceive_time64 mq_timedsend mq_timedsend_time64 mq_unlink msgctl msgget msgrcv msgsnd
        semctl semget semop semtimedop semtimedop_time64 shmat shmctl shmdt shmget
    """,
    "network": """
        accept accept4 bind connect getpeername getsockname getsockopt listen recv recvfrom recvmmsg recvmmsg_time64
        recvmsg send sendmmsg sendmsg sendto setsockopt shutdown socketcall socketpair
    """,
    "randomness": "getrandom",
}

REFUSED = {
    "mounts": "fsconfig fsmount fsopen fspick mount mount_setattr move_mount open_tree pivot_root umount umount2",
    "namespaces": "setns unshare sethostname setdomainname",
    "kernel and modules": "create_module delete_module finit_module init_module kexec_file_load kexec_load reboot",
    "keyrings": "add_key keyctl request_key",
    "tracing": "bpf fanotify_init kcmp lookup_dcookie perf_event_open pidfd_getfd process_madvise syslog userfaultfd",
    "accounting and swap": "acct quotactl quotactl_fd swapoff swapon",
    "handles": "open_by_handle_at",
    "clocks": "clock_settime clock_settime64 settimeofday stime",
    "memory placement": "get_mempolicy mbind migrate_pages move_pages set_mempolicy set_mempolicy_home_node",
    "hardware": "ioperm iopl vhangup vm86 vm86old",
    "queued input and output": "io_uring_enter io_uring_register io_uring_setup",
    "obsolete": "nfsservctl sysfs uselib ustat _sysctl",
}

NAMESPACE_FLAGS = 0x7E020000
"""Every flag of `clone` that makes a namespace. `clone3` hides its flags from a filter, so it does not exist here."""

PERSONALITIES = (0x0, 0x0008, 0x20000, 0x20008, 0xFFFFFFFF)
"""Linux, 32-bit Linux, both with the old uname, and asking which one it is."""

AF_VSOCK = 40
"""Sockets to the hypervisor: the one family that no namespace confines."""

CAPABILITIES = sum(1 << number for number in (0, 1, 3, 4, 5, 6, 7, 8, 10, 13, 18, 27, 29, 31))
"""CHOWN, DAC_OVERRIDE, FOWNER, FSETID, KILL, SETGID, SETUID, SETPCAP, NET_BIND_SERVICE, NET_RAW, SYS_CHROOT, MKNOD,
AUDIT_WRITE, SETFCAP: what root inside may do, as container engines have it."""


SECONDARY = {0xC000003E: 0x40000003, 0xC00000B7: 0x40000028}
"""Programs of this architecture (x86, arm) run on a machine of that one (x86_64, aarch64), by their audit numbers."""


class SeccompUnavailable(Exception):
    """libseccomp is not installed."""


@cache
def compiled() -> bytes:
    """The profile as a BPF program for this machine. Raises SeccompUnavailable."""
    try:
        import pyseccomp as lib
    except (ImportError, RuntimeError, OSError) as error:
        raise SeccompUnavailable(str(error)) from error
    refuse, absent = lib.ERRNO(errno.EPERM), lib.ERRNO(errno.ENOSYS)
    program = lib.SyscallFilter(absent)
    program.set_attr(lib.Attr.ACT_BADARCH, absent)
    with suppress(OSError):
        # A tree instead of a list: what the kernel spends on a filter, it spends mostly on walking through it.
        program.set_attr(lib.Attr.CTL_OPTIMIZE, 2)
    if lib.system_arch() in SECONDARY:
        program.add_arch(SECONDARY[lib.system_arch()])
    for action, groups in ((lib.ALLOW, ALLOWED), (refuse, REFUSED)):
        for name in " ".join(groups.values()).split():
            if (number := lib.resolve_syscall(lib.Arch.NATIVE, name)) != -1:
                program.add_rule(action, number)
    program.add_rule(lib.ALLOW, "clone", lib.Arg(0, lib.MASKED_EQ, NAMESPACE_FLAGS, 0))
    for bit in range(32):
        if NAMESPACE_FLAGS >> bit & 1:
            program.add_rule(refuse, "clone", lib.Arg(0, lib.MASKED_EQ, 1 << bit, 1 << bit))
    for value in PERSONALITIES:
        program.add_rule(lib.ALLOW, "personality", lib.Arg(0, lib.EQ, value))
    program.add_rule(lib.ALLOW, "socket", lib.Arg(0, lib.NE, AF_VSOCK))
    program.add_rule(refuse, "socket", lib.Arg(0, lib.EQ, AF_VSOCK))
    with tempfile.TemporaryFile() as file:
        program.export_bpf(file)
        return os.pread(file.fileno(), 1 << 20, 0)
