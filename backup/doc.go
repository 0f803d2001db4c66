// Package backup writes the whole state of a daemon into one archive while the daemon runs, checks such archives, and
// makes data directories of them.
//
// A backup is what a power cut at one moment would have left on the disk, and the daemon starts from it as it does
// after a power cut: containers are stopped and start again at their next use, with their files. While the ledger takes
// no updates, the files of the data directory are linked and the trees of the disk pool are copied by the file system,
// which takes some milliseconds for each container. All else happens beside the work of the daemon.
//
// The archive is a tar, of these members in this order:
//
//	manifest.json           a Manifest
//	images/SEQUENCE         an OCI archive of all images, in pieces
//	trees/NUMBER/SEQUENCE   each tree of the pool, as btrfs sends it, in pieces
//	data/PATH               the files of the data directory; ledger.db is the last
//	end.json                an end, with a checksum over all before
//
// Caches of image builds, the daemon's log and the hourly copies of the ledger are not in it.
package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"time"

	"berth/runtime/diskpool"
)

// format is the version of archives that this program writes. It reads those up to this one.
const format = 1

// A Manifest says what is in an archive.
type Manifest struct {
	Format  int       `json:"format"`
	Version string    `json:"version"` // of the daemon
	MadeAt  time.Time `json:"made_at"` // the moment that all is as of
	// how long the ledger took no updates, in milliseconds
	HeldMillis int64           `json:"held_ms"`
	PoolBytes  int64           `json:"pool_bytes"` // size of the pool's file; 0: the pool was in no file
	Trees      []diskpool.Tree `json:"trees"`
	Files      int             `json:"files"` // in data
	// about how many bytes follow
	Bytes int64 `json:"bytes"`
}

// An end is the last member.
type end struct {
	Members int64  `json:"members"` // before this one
	Bytes   int64  `json:"bytes"`   // in them
	SHA256  string `json:"sha256"`  // over each member's name, a line feed, its size, a line feed, and its content
}

// ErrNotWhole: an archive is damaged, or lacks its end.
var ErrNotWhole = errors.New("the backup is not whole")

// ErrNotABackup: a file is something else.
var ErrNotABackup = errors.New("this is not a backup of a berth daemon")

// ErrNewer: an archive was made by a newer berth.
var ErrNewer = errors.New("the backup was made by a newer berth; use that version, or a later one")

// Names of members, and of directories of members.
const (
	manifestName = "manifest.json"
	imagesDir    = "images"
	treesDir     = "trees"
	dataDir      = "data"
	endName      = "end.json"
	ledgerName   = "ledger.db"
)

// ImagesFile is the name of the file in a restored data directory that has all images. The daemon imports it when it
// starts, and removes it.
const ImagesFile = "restored-images.tar"

// A tally counts members and hashes them.
type tally struct {
	end
	hash hash.Hash
}

// begin begins a member.
func (t *tally) begin(name string, size int64) {
	t.Members++
	t.Bytes += size
	fmt.Fprintf(t.hash, "%s\n%d\n", name, size)
}

// sum returns the end after the members so far.
func (t *tally) sum() end {
	e := t.end
	e.SHA256 = fmt.Sprintf("%x", t.hash.Sum(nil))
	return e
}

// mustMarshal returns the JSON of a value of ours, which has one.
func mustMarshal(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return text
}
