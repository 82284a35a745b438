# family: shell
# what: Programs in /usr/local/bin come before the real ones.
# user: root
for name in python3 python pytest bash cmp diff grep cat curl uv uvx; do shadow "$name" /usr/local/bin; done
