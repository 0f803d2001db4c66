# Makes a clip, probes it, and takes a picture out of it.
set -e
ffmpeg -v error -f lavfi -i testsrc=size=320x240:rate=10:duration=2 \
	-f lavfi -i sine=frequency=440:duration=2 -c:v libx264 -c:a aac clip.mp4
test "$(ffprobe -v error -select_streams v:0 -show_entries stream=codec_name,width,nb_frames -of csv=p=0 \
	clip.mp4)" = h264,320,20
ffprobe -v error -show_entries format=duration -of json clip.mp4 |
	jq -e '.format.duration | tonumber | . > 1.9 and . < 2.2' >/dev/null
ffmpeg -v error -ss 1 -i clip.mp4 -frames:v 1 frame.png
test "$(identify -format '%wx%h' frame.png)" = 320x240

# Draws a word and reads it.
convert -background white -fill black -font DejaVu-Sans -pointsize 60 label:Warehouse word.png
test "$(tesseract word.png - --psm 8 2>/dev/null | tr -d '[:space:]')" = Warehouse

printf '# Title\n\nSome *text* and a [link](x).\n' >in.md
pandoc in.md -o out.docx
pandoc out.docx -t html | grep -q '<em>text</em>'
echo 'digraph { a -> b }' | dot -Tsvg | grep -q '<svg'
