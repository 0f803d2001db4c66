umask 022; mkdir -p a/b/c; echo x >a/b/c/f; chmod 640 a/b/c/f; stat -c '%a %s %F' a/b/c/f; stat -c '%a %F' a
ln -s b a/link; ln a/b/c/f hard; stat -c %h hard; readlink a/link; cat a/link/c/f; readlink -f a/link/c | sed "s,$PWD,,"
cp -a a copy; diff -r a copy && echo same; mv copy moved; rm -r moved; ls
find . -type f -printf '%P %m %s\n' | sort; find a -depth | sort
touch -d '2001-02-03 04:05:06 UTC' old; TZ=UTC date -r old +%FT%TZ; test old -ot hard && echo older
truncate -s 10M sparse; stat -c %s sparse; dd if=/dev/zero of=d bs=1k count=3 2>/dev/null; wc -c <d
rmdir a; echo $?; mkdir a; echo $?; cd nowhere; echo $?; chmod 000 hard; cat hard; echo $?; cat a; echo $?
tar cf t.tar a && tar tf t.tar | sort; gzip -c t.tar | gzip -dc | cmp - t.tar && echo whole
ln -s loop loop; cat loop; echo $?; mkdir "$(printf 'n%.0s' {1..300})"; echo $?; printf 'l%.0s' {1..255} | xargs touch; echo $?
