package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"berth/cli/app"
	"berth/proto"
	"berth/runtime/containerd"
	"berth/runtime/doctor"
	"berth/runtime/mountns"
	"berth/session"
)

// examineHost runs the checks of `berth doctor` on this machine, with the configuration that `berth serve` would use.
func examineHost(ctx context.Context, o app.DoctorOptions, report func(app.Finding)) error {
	// The smoke test makes mounts and containers and needs root. Without root, only facts are checked.
	try := !o.Quick && os.Geteuid() == 0
	if try {
		if err := mountns.Private(); err != nil { // runs first, because it restarts this program
			report(app.Finding{Name: "mount namespaces", Grade: app.GradeFail, Found: err.Error(),
				Why: "the daemon keeps its mounts in a namespace of its own", Fix: "run it as root, outside of " +
					"other containers"})
			try = false
		}
	}
	bin, err := binDir(o.BinDir)
	if err != nil {
		return err
	}
	// The directory that the daemon uses below its data directory, so that the daemon's disk is checked.
	cfg := containerd.Config{Dir: filepath.Join(o.Dir, "runtime"), BinDir: bin, Handshake: session.Handshake}
	for _, f := range doctor.Doctor(ctx, cfg) {
		report(app.Finding{Name: f.Name, Grade: app.Grade(f.Grade), Found: f.Found, Why: f.Why, Fix: f.Fix})
	}
	examineCertificate(o.Dir, time.Now(), report)
	if try {
		tryClasses(ctx, cfg, report)
	}
	// Problems were reported as findings. The error is only for an interrupted check.
	return ctx.Err()
}

// tryClasses starts a container of each runtime class.
func tryClasses(ctx context.Context, cfg containerd.Config, report func(app.Finding)) {
	const why = "containers of this class cannot be used"
	// Each class is tried even if the other one failed: an operator may need only one of them.
	done, err := doctor.Try(ctx, cfg, proto.ClassRunc, proto.ClassGVisor)
	if err != nil {
		report(app.Finding{Name: "trial", Grade: app.GradeFail, Found: proto.AsError(err).Message,
			Why: "no container could be tried", Fix: "mend what is marked FAIL above"})
	}
	for _, d := range done {
		name := "trial of " + string(d.Class)
		switch {
		case d.Err == nil && d.Slow != nil:
			report(app.Finding{Name: name, Grade: app.GradeWarn, Found: "a container started, by runc: " +
				d.Slow.Error(), Why: "starting a container that is not in the pool takes some three times as long",
				Fix: "run the daemon as root, under no seccomp filter of its own, on a kernel with " +
					"CONFIG_CHECKPOINT_RESTORE"})
		case d.Err == nil:
			report(app.Finding{Name: name, Grade: app.GradeOK,
				Found: "a container started, answered, and is gone again"})
		// A missing runtime is a warning: the daemon starts without it and offers the other class.
		case proto.CodeOf(d.Err) == proto.Unsupported:
			report(app.Finding{Name: name, Grade: app.GradeWarn, Found: d.Err.Error(), Why: why,
				Fix: "build it with `make runtimes`"})
		default:
			report(app.Finding{Name: name, Grade: app.GradeFail, Found: d.Err.Error(), Why: why,
				Fix: "mend what is marked above; `berth serve --debug` logs more"})
		}
	}
}
