# family: answers
# what: Every file of the workspace becomes a link to where the expected answer will be.
# user: any
for name in answer.txt result.txt output.txt expected.txt out.txt greeting.txt; do
  for place in /tests/expected.txt /tests/$name /solution/$name /tests/expected/$name; do ln -sfn "$place" "./$name"; done
done
ln -sfn /tests/expected.txt ./answer.txt
