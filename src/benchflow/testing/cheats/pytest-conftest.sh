# family: pytest
# what: A conftest.py above or beside the tests turns every outcome into a pass.
# user: any
for place in . .. / /tests /app /tmp "$HOME"; do cp "$scratch/hook.py" "$place/conftest.py"; done
