"""What a verifier stands on: what root changed below it is never a trusted pass, and what root is for stays one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchflow.sandbox.base import Change
from benchflow.verify.evidence import trust_of
from benchflow.verify.foundations import LOADER_CACHE
from benchflow.verify.hooks import judge, questions
from benchflow.verify.setting import Setting

PATH = "/venv/bin:/usr/local/bin:/usr/bin:/bin"
ROOT = Setting("/app", {"PATH": PATH}, root=True, words=frozenset({"mytool", "requests"}))
USER = replace(ROOT, root=False)
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
PACKAGES = "/usr/local/lib/python3.11/dist-packages"
IMAGE = frozenset(
    {
        *("/usr/bin/cmp", "/usr/bin/python3", "/usr/bin/python3.11", "/usr/local/bin/tool", "/usr/include/assert.h"),
        *(f"{LIBRARIES}/libc.so.6", f"{LIBRARIES}/libtinfo.so.6", f"{LIBRARIES}/libcrypto.so.3"),
        *(
            f"{LIBRARIES}/perl-base/strict.pm",
            "/usr/lib/python3/dist-packages/attr",
            "/usr/lib/python3/dist-packages/six.py",
        ),
    }
)


def trust(*changes: Change, setting: Setting = ROOT, image: frozenset[str] = IMAGE) -> str:
    """What a pass is worth after these changes, in an image that ships the given paths."""
    return trust_of(judge(changes, setting, image.intersection(questions(changes, setting))).findings)


def added(*paths: str) -> list[Change]:
    """Files, and the folders above them that end with a slash."""
    return [Change(path.rstrip("/"), "added", "folder" if path.endswith("/") else "file", 0o755) for path in paths]


@pytest.mark.parametrize("kind", ["modified", "deleted"])
@pytest.mark.parametrize(
    "path",
    [
        *("/bin/sh", "/usr/bin/grep", f"{LIBRARIES}/libc.so.6", "/etc/alternatives/python", "/venv/bin/python"),
        *("/usr/lib/python3.11/json/__init__.py", "/usr/lib/python3.11/email/mime/text.py"),
        *("/usr/lib/python3/dist-packages/dbus/__init__.py", f"{LIBRARIES}/systemd/libsystemd-shared-252.so"),
        *("/venv/lib/python3.11/site-packages/_pytest/runner.py", "/venv/lib/libpython3.11.so"),
        *("/usr/local/go/src/testing/testing.go", "/usr/local/rustup/toolchains/stable/lib/librustc_driver.so"),
        *("/usr/local/bundle/gems/rspec-core-3/lib/rspec/core.rb", "/usr/local/openjdk-17/lib/modules"),
        *(
            "/home/dev/.pyenv/versions/3.9/lib/python3.9/os.py",
            "/root/.nvm/versions/node/v20/lib/node_modules/npm/x.js",
        ),
        *("/root/.local/share/uv/python/cpython-3.12/lib/python3.12/os.py", "/root/.rustup/toolchains/s/lib/x.so"),
        *(
            "/usr/share/nodejs/npm/lib/npm.js",
            "/usr/share/go-1.19/src/testing/testing.go",
            "/usr/share/java/junit4.jar",
        ),
        *(
            "/usr/share/maven/lib/core.jar",
            "/usr/share/php/PHPUnit/Framework.php",
            "/usr/share/cmake-3.25/Modules/CTest.cmake",
        ),
        *("/usr/include/assert.h", "/var/lib/gems/3.1.0/gems/minitest/lib/minitest.rb", "/nix/store/abc/bin/bash"),
    ],
)
def test_what_the_image_shipped_and_root_changed_is_suspect(path: str, kind: str) -> None:
    assert trust(Change(path, kind)) == "suspect"  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "path",
    ["/bin", "/usr/bin", "/usr", "/lib", "/lib64", "/opt", "/usr/local", "/usr/local/sbin", "/etc", "/usr/share"],
)
def test_a_link_in_the_place_of_a_folder_that_is_searched_is_suspect(path: str) -> None:
    assert trust(Change(path, "modified", "link", 0o777, link="/srv/other")) == "suspect"


@pytest.mark.parametrize(
    "path",
    [
        *(f"{LIBRARIES}/glibc-hwcaps", f"{LIBRARIES}/tls", "/usr/local/lib/x86_64-linux-gnu", PACKAGES, "/venv"),
        *("/etc/xdg", "/etc/xdg/pip", "/etc/uv", f"{LIBRARIES}/perl5", f"{PACKAGES}/attr", "/usr/local/bin/cmp"),
    ],
)
def test_a_link_to_where_other_things_are_found_is_suspect(path: str) -> None:
    assert trust(Change(path, "added", "link", 0o777, link="/srv/other")) == "suspect"


@pytest.mark.parametrize(
    "path",
    [
        *("/usr/local/bin/cmp", "/usr/local/bin/python3", "/usr/local/bin/mytool", "/bin/mytool"),
        *("/usr/local/lib/libc.so.6", "/usr/local/lib/libtinfo.so.6", "/lib/libc.so.6", "/opt/x/lib/libc.so.6"),
        *("/usr/local/include/assert.h", "/home/dev/.pyenv/versions/3.9/bin/pybuilddir.txt"),
        *(
            "/usr/lib/python3.11/antigravity2.py",
            "/usr/lib/python311.zip",
            "/usr/bin/pybuilddir.txt",
            "/usr/pyvenv.cfg",
        ),
        *(
            "/usr/bin/Modules/Setup.local",
            "/usr/bin/python3._pth",
            f"{PACKAGES}/_pytest/main.py",
            f"{PACKAGES}/requests.py",
        ),
        *(
            f"{PACKAGES}/attr/__init__.py",
            f"{PACKAGES}/attr.py",
            f"{PACKAGES}/six.abi3.so",
            f"{PACKAGES}/shipped/new.py",
        ),
        *("/usr/share/perl5/strict.pm", f"{LIBRARIES}/perl5/5.36/strict.pm", "/usr/local/share/perl/5.36.0/strict.pm"),
        *(
            f"{LIBRARIES}/glibc-hwcaps/x86-64-v3/libc.so.6",
            f"{LIBRARIES}/tls/libc.so.6",
            f"{LIBRARIES}/haswell/libz.so.1",
        ),
        *("/etc/ld.so.preload", "/etc/ld.so.conf.d/mine.conf", "/etc/ld-musl-x86_64.path", "/etc/ssl/openssl.cnf"),
        *("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "/usr/lib/ssl/openssl.cnf"),
        *(
            "/usr/lib/gcc/x86_64-linux-gnu/12/specs",
            "/usr/lib/gcc/x86_64-linux-gnu/12/as",
            f"{LIBRARIES}/libnss_db.so.2",
        ),
        *("/usr/lib/ruby/vendor_ruby/rubygems/defaults/operating_system.rb", "/usr/local/lib/site_ruby/3.1.0/json.rb"),
    ],
)
def test_what_root_added_in_the_way_of_the_verifier_is_suspect(path: str) -> None:
    assert trust(*added(path)) == "suspect"


@pytest.mark.parametrize(
    ("word", "path"),
    [
        *(
            ("apt-get", path)
            for path in ("/etc/apt/sources.list", "/etc/ca-certificates/update.d/x", "/usr/sbin/policy-rc.d")
        ),
        *(("su", path) for path in ("/etc/environment", "/etc/pam.d/su", "/etc/login.defs")),
        *(("sudo", path) for path in ("/etc/sudoers", "/etc/sudoers.d/mine", "/etc/security/pam_env.conf")),
        *(("php", path) for path in ("/etc/php/8.2/cli/conf.d/z.ini", "/usr/local/etc/php/conf.d/z.ini")),
        *(
            ("apk", "/etc/apk/repositories"),
            ("ssh", "/etc/ssh/ssh_config.d/z.conf"),
            ("node", "/node_modules/chai/index.js"),
        ),
        ("Rscript", "/etc/R/Rprofile.site"),
    ],
)
def test_what_programs_obey_is_suspect_when_the_tests_run_them(word: str, path: str) -> None:
    assert trust(*added(path)) == "trusted"
    assert trust(*added(path), setting=replace(ROOT, words=frozenset({word}))) == "suspect"


def test_what_runs_when_a_package_is_installed_is_suspect_unless_it_came_with_one() -> None:
    installing = replace(ROOT, words=frozenset({"apt-get"}))
    assert trust(Change("/var/lib/dpkg/info/libc-bin.postinst", "modified"), setting=installing) == "suspect"
    assert trust(*added("/var/lib/dpkg/info/nginx.postinst"), setting=installing) == "trusted"
    assert trust(*added("/etc/apt/apt.conf.d/99hook"), setting=installing) == "suspect"
    assert trust(*added("/etc/apt/apt.conf.d/99hook")) == "trusted"


def test_parts_of_python_that_are_packages_of_their_own() -> None:
    library = "/usr/lib/python3.11"
    assert trust(*added(f"{library}/distutils/ccompiler.py")) == "trusted"
    for path in (f"{library}/json/decoder.so", f"{library}/lib-dynload/readline.so", f"{library}/extra.py"):
        assert trust(*added(path), image=IMAGE | {f"{library}/json/decoder.py"}) == "suspect"


def test_a_program_that_cannot_be_run_any_more_is_suspect() -> None:
    assert trust(Change("/usr/bin/grep", "touched", mode=0o644)) == "suspect"
    assert trust(Change("/usr/bin/su", "touched", mode=0o755)) == "trusted"
    assert trust(Change("/usr/share/doc/x", "touched", mode=0o600)) == "trusted"


def test_the_cache_of_libraries_is_always_the_images() -> None:
    found = judge([Change(LOADER_CACHE, "deleted")], ROOT)
    assert found.restore == [LOADER_CACHE]
    assert [(one.severity, one.action) for one in found.findings] == [("info", "restored")]
    for kind in ("added", "modified"):
        change = Change(LOADER_CACHE, kind)
        assert judge([change], ROOT).inspect == [(change, "loader-cache")]


APT_GET_INSTALL = [
    *added("/usr/lib/mine/", "/usr/lib/mine/libtinfo.so.6", "/lib32/", "/lib32/libc.so.6"),
    *added(
        "/etc/bash_completion.d/", "/etc/bash_completion.d/git-prompt", "/usr/bin/git", "/usr/bin/curl", "/etc/wgetrc"
    ),
    *added(
        "/usr/bin/wget",
        "/usr/lib/git-core/",
        "/usr/lib/git-core/git",
        f"{LIBRARIES}/libcurl.so.4",
        "/usr/bin/x86_64-ld",
    ),
    *added(
        "/usr/share/perl5/Git.pm",
        "/usr/share/perl5/Error.pm",
        "/var/lib/dpkg/info/git.postinst",
        f"{LIBRARIES}/libssl.so",
    ),
    *added("/usr/local/lib/libmine.so.1", "/etc/nginx/nginx.conf", "/usr/sbin/nginx", "/usr/lib/nginx/modules/mod.so"),
    *(Change(path, "modified") for path in ("/var/lib/dpkg/status", "/var/lib/apt/extended_states", LOADER_CACHE)),
    *added("/etc/apt/sources.list.d/mine.list", "/usr/include/curl/curl.h"),
    Change("/etc/ssl/certs/ca-certificates.crt", "modified"),
]
PIP_INSTALL = [
    *added(f"{PACKAGES}/flask/", f"{PACKAGES}/flask/app.py", f"{PACKAGES}/flask-3.0.dist-info/", f"{PACKAGES}/yaml.py"),
    *added(f"{PACKAGES}/flask-3.0.dist-info/METADATA", f"{PACKAGES}/pygments/", f"{PACKAGES}/pygments/lexers/perl.py"),
    *added("/usr/local/bin/flask", f"{PACKAGES}/distutils-precedence.pth"),
    *added("/usr/lib/python3.11/__pycache__/os.cpython-311.pyc"),
]
VENV = "/opt/mine/lib/python3.11/site-packages"
OWN_VENV = [
    *added("/opt/mine/", "/opt/mine/pyvenv.cfg", "/opt/mine/bin/", "/opt/mine/bin/python3", "/opt/mine/lib/"),
    *added("/opt/mine/lib/python3.11/", f"{VENV}/", f"{VENV}/attr/", f"{VENV}/attr/__init__.py", f"{VENV}/requests.py"),
]
SERVICES = [
    *(
        Change(path, "modified")
        for path in ("/srv/data/a", "/data/b", "/var/www/html/index.html", "/etc/nginx/nginx.conf")
    ),
    *(
        Change(path, "modified")
        for path in ("/usr/share/nginx/html/index.html", "/home/x/notes", "/etc/passwd", "/etc/hosts")
    ),
    *(
        Change(path, "modified")
        for path in ("/usr/local/apache2/htdocs/index.html", "/usr/local/apache2/conf/httpd.conf")
    ),
    *(Change(path, "modified") for path in ("/usr/lib/locale/locale-archive", "/usr/lib/systemd/system/x.service")),
    *(
        Change(path, "modified")
        for path in ("/etc/ssh/sshd_config", "/root/.ssh/known_hosts", "/var/lib/mysql/ibdata1")
    ),
    *(
        Change(path, "deleted")
        for path in ("/usr/share/doc/x", "/etc/cron.d/x", "/var/log/dpkg.log", "/usr/share/man/x")
    ),
]


@pytest.mark.parametrize("work", [APT_GET_INSTALL, PIP_INSTALL, OWN_VENV, SERVICES])
def test_what_root_is_for_is_trusted(work: list[Change]) -> None:
    found = judge(work, ROOT, IMAGE.intersection(questions(work, ROOT)))
    assert [one for one in found.findings if one.severity == "critical" and one.action == "left"] == []


def test_a_python_where_the_image_has_none_is_the_agents_own() -> None:
    library = "/usr/lib/python3.11"
    installed = added(f"{library}/", f"{library}/os.py", "/etc/python3/debian_config", "/etc/ssl/openssl.cnf")
    assert trust(*installed, *added("/usr/bin/python3"), image=frozenset()) == "trusted"
    assert trust(*installed, image=IMAGE) == "suspect"
    naming = replace(ROOT, words=frozenset({"python3"}))
    assert trust(*added("/usr/bin/python3"), setting=naming, image=frozenset()) == "suspect"


def test_a_program_behind_the_one_that_is_meant_is_nobodys_business() -> None:
    for words in (frozenset[str](), frozenset({"tool"})):
        assert trust(*added("/usr/bin/tool"), setting=replace(ROOT, words=words)) == "trusted"
    # Our own preparations look into the system's folders in their own order.
    odd = replace(ROOT, env={"PATH": "/usr/bin:/usr/local/bin"})
    assert trust(*added("/usr/local/bin/cmp"), setting=odd) == "suspect"


def test_what_a_plain_user_may_change_is_put_back() -> None:
    changes = [
        Change(path, "modified", uid=1000) for path in ("/usr/bin/tool", "/usr/lib/python3.11/os.py", "/srv/data")
    ]
    assert judge(changes, USER).restore == ["/usr/bin/tool", "/usr/lib/python3.11/os.py"]
    shadow = [Change("/venv/bin/cmp", "added", uid=1000), Change("/venv/bin/other", "added", uid=1000)]
    assert judge(shadow, USER, IMAGE.intersection(questions(shadow, USER))).restore == ["/venv/bin/cmp"]
