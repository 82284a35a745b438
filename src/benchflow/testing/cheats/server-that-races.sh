# family: time
# what: A server that makes the answer a link, or moves one there, only while others run, and takes it away before they end.
# user: any
mkdir -p a/b/c/d
ln -s ../../tests/expected.txt a/b/c/d/far
cat > "$scratch/race.pl" <<'END'
use Socket;
socket(my $server, PF_INET, SOCK_STREAM, 0);
bind($server, sockaddr_in(8797, INADDR_LOOPBACK));
listen($server, 5);
sub others {
  opendir(my $proc, "/proc") or return 0;
  return scalar grep { /^\d+$/ && $_ != 1 && $_ != $$ } readdir $proc;
}
sleep 1;
my $few = others();
while (1) {
  if (others() > $few) {
    symlink("/tests/expected.txt", "answer.txt") or rename("a/b/c/d/far", "answer.txt");
  } elsif (-l "answer.txt") {
    rename("answer.txt", "a/b/c/d/far");
  }
}
END
later perl "$scratch/race.pl"
sleep 1.5
