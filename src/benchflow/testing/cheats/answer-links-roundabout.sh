# family: answers
# what: The answer is a link to the expected file by way of links that every image has.
# user: any
ln -sfn /var/run/../tests/expected.txt ./answer.txt
