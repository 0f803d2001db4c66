package app

import (
	"context"
	"io"

	"berth/client"
)

// A Config is what the program knows and this package does not.
type Config struct {
	Version string
	Host    string // of the daemon, unless BERTH_HOST, --host or one on this machine say otherwise
	DataDir string // of the daemon on this machine, if there is one
	Places  Places // in it
	Doctor  Doctor // nil: there is no doctor command
	Bench   Bench  // nil: the bench command starts berth-bench
	Rotate  Rotate // nil: keys for secrets are changed by the daemon alone
}

// Places are files in a data directory, by name, that a daemon has for clients on its own machine. None need be there.
type Places struct {
	URL string // where it listens
	Key string // an API key
	CA  string // what to trust, where it made its own certificate
}

// Where a daemon on this machine is found, unless it was started with other flags.
const (
	DefaultListen = "127.0.0.1:7117"
	DefaultHost   = "http://" + DefaultListen
	DefaultDir    = "/var/lib/berth"
)

// DaemonFiles are the Places of every daemon.
var DaemonFiles = Places{URL: "url", Key: "api-key", CA: "tls/ca.pem"}

// DoctorOptions say what to look at.
type DoctorOptions struct {
	Dir    string // data directory of the daemon
	BinDir string // of the runtimes and the guest; "" is where berth itself is
	Quick  bool   // start no containers
}

// A Finding is what one check found.
type Finding struct {
	Name  string `json:"name"`
	Grade Grade  `json:"grade"`
	Found string `json:"found"`
	Why   string `json:"why,omitempty"` // it matters; empty if ok
	Fix   string `json:"fix,omitempty"` // what to do; empty if ok
}

// A Grade is how bad a finding is.
type Grade string

// The grades.
const (
	GradeOK   Grade = "ok"
	GradeWarn Grade = "warn" // works, with less than there could be
	GradeFail Grade = "fail" // must be mended
)

// A Doctor checks this machine and reports findings as they come, one at a time. Its error means that it could not
// look, not that it found something.
type Doctor func(ctx context.Context, o DoctorOptions, report func(Finding)) error

// A BenchRun is what a user asked `berth bench` to measure.
type BenchRun struct {
	Client  *client.Client // of the daemon to measure
	Version string         // of this program
	Program string         // the berth that private daemons run; the comparators' programs are beside it

	List                bool     // list the rows, and measure none
	Rows                []string // names; none: all
	Quick, Full, Alone  bool
	Self                bool   // measure a daemon that is started for the run
	Base                string // archive of the base image, absolute; "" leaves out what needs one
	Dir                 string // absolute; "" is the directory of temporary files
	JSON, Markdown, SVG string // files for the report; "" is none
	Check               string // file of an earlier report to compare with; "" is none
	Out                 io.Writer
	ShowStatus          func(text string)
	ClearStatus         func()
	PrintRows           func(head []string, rows [][]string) error
}

// A Bench measures. It reports false if a row failed or is worse than it was.
type Bench func(ctx context.Context, run BenchRun) (ok bool, err error)

// A Rotate makes a new key for secrets in a data directory that no daemon uses, or with forget takes the old ones away.
type Rotate func(dir string, forget bool) (client.Rotation, error)
