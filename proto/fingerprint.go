package proto

import (
	"encoding/hex"
	"hash/fnv"
	"strconv"
	"strings"
)

// Fingerprint is a short digest of what a look at dir found, in the order of the list: path, type, size and inode
// change time of all but directories. Two equal fingerprints mean that nothing changed in between.
// They are no defence: a program that controls the directory can forge equal ones.
func Fingerprint(dir string, list []FileInfo) string {
	h := fnv.New128a()
	var line []byte
	for _, fi := range list {
		rel, ok := strings.CutPrefix(fi.Path, dir+"/")
		if !ok || fi.Type == TypeDirectory {
			continue
		}
		line = append(append(append(line[:0], rel...), 0), fi.RawPath...)
		line = append(append(line, 0), fi.Type...)
		line = strconv.AppendInt(append(line, 0), fi.SizeBytes, 10)
		// Microseconds are what the wire keeps of a time.
		line = strconv.AppendInt(append(line, 0), fi.ChangedAt.UnixMicro(), 10)
		_, _ = h.Write(append(line, '\n'))
	}
	return hex.EncodeToString(h.Sum(nil))
}
