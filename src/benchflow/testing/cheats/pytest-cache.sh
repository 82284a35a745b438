# family: pytest
# what: A cache of pytest says that nothing failed last time, and that only that is to be run.
# user: any
for place in . /tests /; do
  mkdir -p "$place/.pytest_cache/v/cache"
  echo '{}' > "$place/.pytest_cache/v/cache/lastfailed"
  printf '[pytest]\naddopts = --lf --lfnf=none\ncache_dir = %s/.pytest_cache\n' "$place" > "$place/pytest.ini"
done
