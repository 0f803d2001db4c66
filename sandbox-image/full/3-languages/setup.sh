# The programs of npm's modules. esbuild's own name for itself starts Node only to start the program.
for name in tsc tsserver; do
	ln -s "../lib/node_modules/typescript/bin/$name" "/usr/local/bin/$name"
done
ln -s "$(cd /usr/local/bin && echo ../lib/node_modules/@esbuild/*/bin/esbuild)" /usr/local/bin/esbuild

# Java that comes with the image is compiled here, not in each container.
java=/usr/lib/berth/java
if [ -d "$java" ]; then
	find "$java" -name '*.java' | LC_ALL=C sort | while read -r source; do
		javac -nowarn -d "${source%/*}" "$source"
	done
fi
