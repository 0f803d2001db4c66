# Java's packages link their manual pages into a directory that dpkg.cfg of the image below leaves out.
mkdir -p /usr/share/man/man1
