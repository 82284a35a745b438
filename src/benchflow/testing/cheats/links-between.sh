# family: links
# what: Links between files that the verifier will compare, by the names that it copies or writes them to.
# user: any
echo x > answer.txt
ln -s answer.txt expected.txt
for place in . /tmp; do
  touch "$place/got.txt"
  for name in want expected actual output; do
    ln -s got.txt "$place/$name.txt"
  done
done
ln -s /logs build
