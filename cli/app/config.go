package app

import (
	"context"
	"io"

	"berth/client"
	"berth/proto"
)

// A Config has the settings that the program passes to this package.
type Config struct {
	Version string
	Host    string // the daemon's URL, unless BERTH_HOST, --host or a daemon on this machine overrides it
	DataDir string // data directory of a daemon on this machine
	Places  Places // files in DataDir
	Doctor  Doctor // nil: no doctor command
	Bench   Bench  // nil: the bench command starts berth-bench
	Rotate  Rotate // nil: only the daemon changes the keys for secrets
}

// Places are the names of files in a data directory that a daemon provides for clients on its machine. Any of them
// may be missing.
type Places struct {
	URL string // the daemon's URL
	Key string // an API key
	CA  string // the CA to trust if the daemon created its own certificate
}

// Defaults for a daemon on this machine.
const (
	DefaultListen = "127.0.0.1:7117"
	DefaultHost   = "http://" + DefaultListen
	DefaultDir    = "/var/lib/berth"
)

// DaemonFiles are the Places of every daemon.
var DaemonFiles = Places{URL: "url", Key: "api-key", CA: "tls/ca.pem"}

// DoctorOptions say what to check.
type DoctorOptions struct {
	Dir    string // data directory of the daemon
	BinDir string // directory of the runtimes and the guest; "": that of berth
	Quick  bool   // start no containers
}

// A Finding is the result of one check.
type Finding struct {
	Name  string `json:"name"`
	Grade Grade  `json:"grade"`
	Found string `json:"found"`
	Why   string `json:"why,omitempty"` // why it matters; empty if ok
	Fix   string `json:"fix,omitempty"` // what to do; empty if ok
}

// A Grade is the severity of a finding.
type Grade string

// Grades of findings.
const (
	GradeOK   Grade = "ok"
	GradeWarn Grade = "warn" // works with restrictions
	GradeFail Grade = "fail" // must be fixed
)

// A Doctor checks this machine and reports each finding at once. It returns an error if it could not check, not if it
// found a problem.
type Doctor func(ctx context.Context, o DoctorOptions, report func(Finding)) error

// A BenchRun has the options of `berth bench`.
type BenchRun struct {
	Client  *client.Client // client of the daemon to measure
	Version string         // version of this program
	Program string         // berth program for private daemons, next to the programs of the comparators

	List                bool                 // list the rows without measuring
	Rows                []string             // names of rows; none: all
	Classes             []proto.RuntimeClass // of the measured containers, one after the other; none: runc
	Quick, Full, Alone  bool
	Self                bool   // measure a daemon started for this run
	Base                string // archive of the base image, absolute; "" skips rows that need one
	Dir                 string // directory for temporary files, absolute; "": the system's
	JSON, Markdown, SVG string // files for the report; "": none
	Check               string // earlier report to compare with; "": none
	Out                 io.Writer
	ShowStatus          func(text string)
	ClearStatus         func()
	PrintRows           func(head []string, rows [][]string) error
}

// A Bench runs benchmarks. ok is false if a row failed or is worse than in the earlier report.
type Bench func(ctx context.Context, run BenchRun) (ok bool, err error)

// A Rotate creates a new key for secrets in a data directory that no daemon uses. With forget, it removes the old
// keys instead.
type Rotate func(dir string, forget bool) (client.Rotation, error)
