// Package bench measures a daemon and compares it with the machine itself, containerd, docker, crun, bubblewrap and a
// Jupyter kernel.
//
// The participants of a row are measured in turns, round by round, in one run on one machine: the floor, ours, the
// next one, the floor again. Interference on the machine then affects all of them alike. So ratios are stable even if
// absolute times are not. Ratios are compared with those of an earlier run.
package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"berth/client"
	"berth/proto"
)

// Options selects what to measure and with which programs.
type Options struct {
	Client *client.Client // for the measured daemon; nil: Self
	Self   bool           // start a daemon and measure it
	// Dir is for copies and for the data of private daemons. It must be on the same file system as the data of
	// Client's daemon. "" is the directory of temporary files.
	Dir     string
	Program string // the berth program for private daemons; the comparators' programs are in the same directory
	Base    string // archive of the base image; "" skips measurements that need one
	Version string // of the program, for the Stamp

	// Class is the runtime class of the measured containers; "" is runc. Results of another class are a column of the
	// report, beside those of runc.
	Class proto.RuntimeClass

	Rows  []string // names; none selects all
	Quick bool     // few rounds: a smoke test whose numbers mean little
	Full  bool     // long forms: five minutes of churn, 500 sessions
	Alone bool     // without comparators
	Say   func(string)
}

// A row is one benchmark.
type row struct {
	name string
	does string
	run  func(*bench, context.Context, *Result) error
}

// rows are all benchmarks, in the order of the report.
var rows = []row{
	{"exec", "run `bash -c true` over HTTP on a kept connection", (*bench).exec},
	{"exec-live", "the same inside an open websocket", (*bench).execLive},
	{"files", "run `bash -c true` in a directory with up to 100,000 files", (*bench).files},
	{"throughput", "run `bash -c true` with 16 clients at once", (*bench).throughput},
	{"python", "run `python3 -c pass`, without bash", (*bench).python},
	{"code", "run `1+1` in Python afresh, and get its value", (*bench).code},
	{"cell", "the same in a context that is there", (*bench).cell},
	{"warm", "create a container from the pool", (*bench).warm},
	{"custom", "the same with environment, limits and an existing workspace", (*bench).custom},
	{"burst", "create 200 containers at once from a pool of 200", (*bench).burst},
	{"cold", "create a container with the pool empty", (*bench).cold},
	{"churn", "create and delete containers with 4 workers", (*bench).churn},
	{"memory", "what idle containers hold", (*bench).memory},
	{"upload", "store 1 GiB, and write it into a container", (*bench).upload},
	{"download", "read 1 GiB that is stored, and out of a container", (*bench).download},
	{"mebibyte", "store 1 MiB and read it, and the same into a container and out of it", (*bench).mebibyte},
	{"many", "10,000 files of 4 KiB into a container and out of it, as one archive", (*bench).many},
	{"line", "a line from a container to the client", (*bench).line},
	{"bulk", "512 MiB of standard output to the client", (*bench).bulk},
	{"watch", "a change in a container until a client that watches knows it", (*bench).watch},
	{"pause", "have a paused container go on", (*bench).pause},
	{"wake", "a command in a container that was stopped for lack of use", (*bench).wake},
	{"snapshot", "keep the files of a container of 1 GiB whose command writes", (*bench).snapshot},
	{"fork", "copy such a container", (*bench).fork},
	{"fork-100-numpy", "100 forks that each import numpy in Python, beside creates and docker run", (*bench).fork100},
	{"gvisor", "what the runtime class gvisor costs, beside runc", (*bench).gvisor},
	{"restart", "the first command after the daemon was killed with 200 containers live", (*bench).restart},
	{"slopes", "commands, creates, a sweep and a restart at 10, 100 and 1,000 live containers", (*bench).slopes},
	{"tree", "what the whole machine does for one operation", (*bench).tree},
}

// unmeasured lists the planned forms of rows that are not measured, so that the report shows them as missing.
var unmeasured = map[string][]Missing{
	"warm":   {{"byggflow, sandkasten, cocoon", notPackaged}},
	"custom": {{"byggflow, sandkasten, cocoon", notPackaged}},
	"burst":  {{"agent-sandbox", "it needs Kubernetes"}, {"a pool of docker's", "docker has none"}},
	"memory": {{"Dormice, Cube", notPackaged}},
	"line":   {{"kubectl exec", "it needs Kubernetes"}},
	"bulk":   {{"kubectl exec", "it needs Kubernetes"}},
}

// sameForClasses lists the rows that are not measured once more in another class than runc, with the reason.
var sameForClasses = map[string]string{
	"gvisor": "the row has both classes",
}

// notPackaged is a reason for an unmeasured form.
const notPackaged = "not packaged for Debian"

// A Description is the text of a row for --list.
type Description struct {
	Name string `json:"name"`
	Does string `json:"does"`
}

// List returns the names of all rows.
func List() []Description {
	var all []Description
	for _, r := range rows {
		all = append(all, Description{r.name, r.does})
	}
	return all
}

// bench is one run.
type bench struct {
	Options
	tmp    string
	own    *daemon // the private daemon that is running, if any
	shared *daemon // wraps Client
	others map[string]*comparator
	reason map[string]string // why a comparator is missing
	parts  map[string]string // versions of the participating programs
	unpack struct {
		done bool
		root string
		err  error
	}
	locked *thread
}

// Run measures the rows and reports each as it ends. A row that fails reports that in its result, and the other rows
// continue. Run returns an error if no row can be measured, or if ctx ends: then with the rows that are finished.
func Run(ctx context.Context, o Options) (Report, error) {
	chosen, err := o.chosen()
	if err != nil {
		return Report{}, err
	}
	o.Class = classOf(o.Class)
	b := &bench{Options: o, others: map[string]*comparator{}, reason: map[string]string{}, parts: map[string]string{}}
	if b.tmp, err = os.MkdirTemp(o.Dir, "berth-bench-"); err != nil {
		return Report{}, err
	}
	defer b.close()
	report := Report{Stamp: stampOf(b.tmp, o.Version)}
	for i, r := range chosen {
		b.say("%d/%d %s: %s", i+1, len(chosen), r.name, r.does)
		report.Stamp.Versions = b.parts
		res := b.measure(ctx, r)
		if ctx.Err() != nil {
			return report, ctx.Err()
		}
		report.Rows = append(report.Rows, res)
	}
	return report, nil
}

// chosen returns the rows that Options name.
func (o Options) chosen() ([]row, error) {
	if len(o.Rows) == 0 {
		return rows, nil
	}
	var list []row
	for _, name := range o.Rows {
		i := slices.IndexFunc(rows, func(r row) bool { return r.name == name })
		if i < 0 {
			return nil, proto.Errorf(proto.InvalidArgument, "", "rows",
				"there is no row %q; `berth bench --list` names them", name)
		}
		list = append(list, rows[i])
	}
	return list, nil
}

// measure runs one row.
func (b *bench) measure(ctx context.Context, r row) Result {
	res := Result{Row: r.name, Class: b.Class, Does: r.does, At: time.Now().UTC().Truncate(time.Second), Version: b.Version,
		Load: loadAverage(), Quick: b.Quick}
	began := time.Now()
	err := b.unlessSame(r)(b, ctx, &res)
	res.Missing = append(res.Missing, unmeasured[r.name]...)
	var skip *skipped
	switch {
	case errors.As(err, &skip):
		res.Skipped = skip.reason
	case err != nil:
		res.Failed = err.Error()
	}
	for _, m := range res.Measures {
		if m.Failures > 0 && m.Role == Ours && res.Failed == "" {
			res.Failed = fmt.Sprintf("%d of %d failed: %s", m.Failures, m.Failures+m.N, m.Failure)
		}
	}
	res.Seconds = time.Since(began).Seconds()
	return res
}

// unlessSame returns what runs a row, unless the row says nothing about the measured class.
func (b *bench) unlessSame(r row) func(*bench, context.Context, *Result) error {
	why := sameForClasses[r.name]
	if b.Class == "" || why == "" {
		return r.run
	}
	return func(*bench, context.Context, *Result) error { return &skipped{why} }
}

// skipped is an error for a row that cannot be measured here. It does not count as a failure.
type skipped struct{ reason string }

func (s *skipped) Error() string { return s.reason }

// say prints progress.
func (b *bench) say(format string, args ...any) {
	if b.Say != nil {
		b.Say(fmt.Sprintf(format, args...))
	}
}

// rounds returns n, or a smaller number in a quick run. In the class gvisor it is half of a large n: where each round
// needs a sandbox, the row would take half an hour.
func (b *bench) rounds(n int) int {
	switch {
	case b.Quick:
		return min(n, 5)
	case b.Class == proto.ClassGVisor && n >= manyRounds:
		return n / 2
	}
	return n
}

// manyRounds is from how many rounds on a row has fewer in the class gvisor.
const manyRounds = 50

// live returns how many containers a row has at once: n, fewer in a quick run, and a fraction of n in the class gvisor,
// where each has a kernel of its own. The result says that.
func (b *bench) live(res *Result, n, quick, fraction int) int {
	switch {
	case b.Quick:
		return quick
	case b.Class == proto.ClassGVisor:
		res.Missing = append(res.Missing, Missing{fmt.Sprintf("%d containers", n), "each has a kernel, which takes a " +
			"quarter of a second to start and some 20 MiB"})
		return n / fraction
	}
	return n
}

// close stops everything that the run has started, also after an interruption.
func (b *bench) close() {
	b.stopOwn()
	for _, c := range b.others {
		c.stop()
	}
	b.locked.end()
	if err := os.RemoveAll(b.tmp); err != nil {
		b.say("cannot remove %s: %v", b.tmp, err)
	}
}

// part records the version that a participating program prints.
func (b *bench) part(ctx context.Context, name, program string) {
	if b.parts[name] != "" {
		return
	}
	if v := said(ctx, program, "--version"); v != "" {
		b.parts[name] = v
	}
}
