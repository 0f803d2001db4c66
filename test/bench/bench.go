// Package bench measures a daemon beside what it is compared with: the machine itself, containerd, docker, crun,
// bubblewrap and a Jupyter kernel.
//
// All of one row is measured in turns, round by round, in one run on one machine: the floor, ours, the next, the
// floor again. What a machine does to one of them it so does to all, and their ratios hold where seconds do not.
// Ratios are what is compared with an earlier run.
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

// Options say what to measure and with what.
type Options struct {
	Client *client.Client // of the daemon that is measured; nil: Self
	Self   bool           // measure a daemon that is started for it
	// where copies and private daemons' data go, on the file system of the data of Client's daemon; "" is that of
	// temporary files
	Dir     string
	Program string // the berth that private daemons are made of; beside it are the comparators' programs
	Base    string // the base image's archive; "" leaves out what needs one
	Version string // of the program, for the stamp

	Rows  []string // names; none is all
	Quick bool     // few rounds: it works, and the numbers say little
	Full  bool     // the long forms: five minutes of churn, 500 sessions
	Alone bool     // no comparators
	Say   func(string)
}

// A row is one benchmark.
type row struct {
	name string
	does string
	run  func(*bench, context.Context, *Result) error
}

// rows are all of them, in the order of the report.
var rows = []row{
	{"exec", "run `bash -c true` over HTTP on a kept connection", (*bench).exec},
	{"exec-live", "the same inside an open websocket", (*bench).execLive},
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
	{"pause", "have a paused container go on", (*bench).pause},
	{"doze", "a command in a container that dozes", (*bench).doze},
	{"restart", "the first command after the daemon was killed with 200 containers live", (*bench).restart},
	{"slopes", "commands, creates, a sweep and a restart at 10, 100 and 1,000 live containers", (*bench).slopes},
	{"tree", "what the whole machine does for one operation", (*bench).tree},
}

// unmeasured is what the plan of these rows names and they do not have, so that nobody takes a row for more than it is.
var unmeasured = map[string][]Missing{
	"warm":   {{"byggflow, sandkasten, cocoon", notPackaged}},
	"custom": {{"byggflow, sandkasten, cocoon", notPackaged}},
	"burst":  {{"agent-sandbox", "it needs Kubernetes"}, {"a pool of docker's", "docker has none"}},
	"memory": {{"Dormice, Cube", notPackaged}},
	"line":   {{"kubectl exec", "it needs Kubernetes"}},
	"bulk":   {{"kubectl exec", "it needs Kubernetes"}},
}

// notPackaged is why something is unmeasured.
const notPackaged = "not packaged for Debian"

// A Description is what --list shows of a row.
type Description struct {
	Name string `json:"name"`
	Does string `json:"does"`
}

// List names the rows there are.
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
	own    *daemon // the private daemon that runs now, if any
	shared *daemon // around Client
	others map[string]*comparator
	reason map[string]string // why a comparator is not among them
	parts  map[string]string // versions of what took part
	unpack struct {
		done bool
		root string
		err  error
	}
	locked *thread
}

// Run measures the rows and reports on each as it ends. A row that fails says so in its result, and the others go on;
// the error is of what no row can be measured without.
func Run(ctx context.Context, o Options) (Report, error) {
	chosen, err := o.chosen()
	if err != nil {
		return Report{}, err
	}
	b := &bench{Options: o, others: map[string]*comparator{}, reason: map[string]string{}, parts: map[string]string{}}
	if b.tmp, err = os.MkdirTemp(o.Dir, "berth-bench-"); err != nil {
		return Report{}, err
	}
	defer b.close()
	report := Report{Stamp: stampOf(b.tmp, o.Version)}
	for i, r := range chosen {
		b.say("%d/%d %s: %s", i+1, len(chosen), r.name, r.does)
		report.Rows = append(report.Rows, b.measure(ctx, r))
		if ctx.Err() != nil {
			return report, ctx.Err()
		}
	}
	report.Stamp.Versions = b.parts
	return report, nil
}

// chosen are the rows that Options name.
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
	res := Result{Row: r.name, Does: r.does, At: time.Now().UTC().Truncate(time.Second), Version: b.Version,
		Load: loadAverage(), Quick: b.Quick}
	began := time.Now()
	err := r.run(b, ctx, &res)
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

// skipped is a row that cannot be measured here, which is no failure.
type skipped struct{ reason string }

func (s *skipped) Error() string { return s.reason }

// say tells what goes on.
func (b *bench) say(format string, args ...any) {
	if b.Say != nil {
		b.Say(fmt.Sprintf(format, args...))
	}
}

// rounds is n, or few in a quick run.
func (b *bench) rounds(n int) int {
	if b.Quick {
		return min(n, 5)
	}
	return n
}

// close ends all that was started, also after an interruption.
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

// part keeps the version of a program that takes part, as that says it.
func (b *bench) part(ctx context.Context, name, program string) {
	if b.parts[name] != "" {
		return
	}
	if v := said(ctx, program, "--version"); v != "" {
		b.parts[name] = v
	}
}
