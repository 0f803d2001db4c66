# Java that comes with the image is compiled here, not in each container.
java=/usr/lib/berth/java
find "$java" -name '*.java' | LC_ALL=C sort | while read -r source; do
	javac -nowarn -d "${source%/*}" "$source"
done
