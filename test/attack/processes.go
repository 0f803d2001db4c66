package attack

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"berth/proto"
)

// Groups 13 to 15, 18 and 19: processes. Commands come from models and their users. So it is normal that they hang,
// multiply and leave processes behind.
var _ = register(
	// Without a limit on processes, one line of shell makes it impossible to log in to the host.
	Case{
		Group: 13, Name: "processes/bombs", Inside: true, Alone: true,
		Tries: "fork, start threads and leave zombies without end",
		Wants: "the container's limit stops it, the time limit ends it, nothing of it is left, and the container " +
			"still works",
		Run: bombs,
	},
	// If a time limit kills only the process group, any process can leave it, even by accident.
	Case{
		Group: 13, Name: "processes/escape", Inside: true,
		Tries: "outlive a command by double forks, setsid, another process group, a cleared environment, and " +
			"handlers for every signal",
		Wants: "after the command's time limit none of its processes is left, and those left by one that ended are told of",
		Run:   processEscape,
	},
	// A command that exceeds its memory must fail and the result must say so. If it says only "killed", users look
	// for a bug of their own.
	Case{
		Group: 14, Name: "processes/memory", Inside: true, Alone: true,
		Tries: "take more memory than the container has, by allocation, in /dev/shm, in /tmp, and as page cache",
		Wants: "the end says out_of_memory or the write fails, and the container still works",
		Run:   memoryBombs,
	},
	// Neighbours are promised a share of the CPU.
	Case{
		Group: 15, Name: "processes/cpu", Inside: true, Alone: true,
		Tries: "spin on every core, with a thousand timers, and ask for more than its share by nice and realtime",
		Wants: "the time limit ends it, the host's kernel refuses the asking, and the CPU used stays within the limit",
		Run:   cpuSpin,
	},
	// A shell's 137 may be a code or a signal. The API distinguishes them, so it must be right.
	Case{
		Group: 18, Name: "processes/ends", Inside: true,
		Tries: "end by each signal and code, and run what is missing, not executable, a directory, without " +
			"interpreter, empty, or too large",
		Wants: "each end is told as it was, each command that cannot be run by name",
		Run:   ends,
	},
	// A time limit must also end processes that sleep, are stopped, or ignore signals.
	Case{
		Group: 19, Name: "processes/timeouts", Inside: true,
		Tries: "be stopped, asleep, ignoring SIGTERM, in a lock or behind a spawned child when the time limit comes",
		Wants: "the end says timeout within seconds",
		Run:   timeouts,
	},
)

// ended runs a script with a time limit and checks that it ends for one of the reasons, soon after the limit. The
// extra time is for killing it and reading the rest of the output.
func (t *Target) ended(ctx context.Context, container, what, script string, limit float64, reasons ...proto.EndReason) (
	proto.ExecResult, error) {
	began := time.Now()
	res, err := t.Do(ctx, container, proto.Cmd{Command: script, TimeoutSeconds: limit})
	if err != nil {
		return res, fmt.Errorf("%s: %w", what, err)
	}
	if took := time.Since(began); took > time.Duration(limit*float64(time.Second))+patience {
		return res, Breached("%s ended only after %v", what, took)
	}
	for _, r := range reasons {
		if res.Exec.End.Reason == r {
			return res, nil
		}
	}
	return res, Breached("%s ended with: %s, which is none of %v", what, describe(res), reasons)
}

// nothingRuns returns a Breach if the user has a process whose command line contains the mark. Root searches /proc,
// so no process can hide by its user. The searching command itself is excluded.
func (t *Target) nothingRuns(ctx context.Context, container, mark string) error {
	got, err := t.Output(ctx, container, proto.UserRoot,
		`for p in /proc/[0-9]*; do [ "$p" = /proc/$$ ] || tr '\0' ' ' <$p/cmdline 2>/dev/null | grep -F `+mark+
			` | grep -vF 'for p in'; done; true`)
	if err != nil {
		return err
	}
	if got != "" {
		return Breached("processes are left: %.300s", got)
	}
	return nil
}

// bombs runs three bombs in a container of 100 processes.
func bombs(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{Limits: proto.Limits{PIDs: 100}})
	if err != nil {
		return "", err
	}
	for what, script := range map[string]string{
		"a fork bomb": "exec -a bomb-4711 bash -c 'b() { b | b & }; b; sleep 600'",
		"a thread bomb": "exec -a bomb-4711 python3 -c 'import threading,time\nwhile 1:\n try: " +
			"threading.Thread(target=time.sleep, args=(600,)).start()\n except RuntimeError: pass'",
		"a zombie factory": "exec -a bomb-4711 python3 -c 'import os,time\nwhile 1:\n try:\n  if os.fork() == 0: " +
			"os._exit(0)\n except OSError: time.sleep(0.01)'",
	} {
		// The reason depends on whether the bomb's first process could continue. In any case all of it must be gone.
		if _, err := t.ended(ctx, con.ID, what, script, 2, proto.EndTimeout, proto.EndExit, "pid_limit"); err != nil {
			return "", err
		}
		if err := t.alive(ctx, con.ID); err != nil {
			return "", fmt.Errorf("after %s: %w", what, err)
		}
		if err := t.nothingRuns(ctx, con.ID, "bomb-4711"); err != nil {
			return "", err
		}
	}
	return "each was ended, nothing is left of it", nil
}

// survivors are ways to leave a process with the mark in its command line behind.
var survivors = map[string]string{
	"a double fork":         "(exec -a mark-4711 sleep 600 &) & wait",
	"setsid":                "setsid -f bash -c 'exec -a mark-4711 sleep 600'",
	"a cleared environment": "setsid -f env -i /bin/bash -c 'exec -a mark-4711 sleep 600' </dev/null >/dev/null 2>&1",
	"ignored signals": "setsid -f bash -c 'trap \"\" HUP INT QUIT TERM USR1 USR2 PIPE; exec -a mark-4711 " +
		"sleep 600' >/dev/null 2>&1",
	"all of them": "setsid -f env -i /usr/bin/setsid -f /bin/bash -c 'trap \"\" HUP TERM; (exec -a " +
		"mark-4711 sleep 600 </dev/null >/dev/null 2>&1 &)' </dev/null >/dev/null 2>&1",
	"a breeder": "setsid -f bash -c 'for i in 1 2 3 4 5 6 7 8; do (exec -a mark-4711 sleep 600 &); " +
		"done; exec -a mark-4711 sleep 600' >/dev/null 2>&1",
}

// processEscape tries each way twice: ended by a time limit, and ending by itself with a process left.
func processEscape(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	for what, script := range survivors {
		if _, err := t.ended(ctx, con.ID, what, script+"; sleep 600", 0.7, proto.EndTimeout); err != nil {
			return "", err
		}
		if err := t.nothingRuns(ctx, con.ID, "mark-4711"); err != nil {
			return "", fmt.Errorf("%s: %w", what, err)
		}
		res, err := t.ended(ctx, con.ID, what, script+" & sleep 0.3", 20, proto.EndExit)
		if err != nil {
			return "", err
		}
		// A command that ends may leave processes, as in a shell; the result must say so.
		if res.Exec.End.Leftover == 0 {
			return "", Breached("%s left something running that was not told of", what)
		}
		if _, err := t.Output(ctx, con.ID, proto.UserRoot, "pkill -9 -f '[m]ark-4711'; true"); err != nil {
			return "", err
		}
	}
	return fmt.Sprintf("%d ways to outlive a command were ended, or told of", len(survivors)), nil
}

// memoryBombs allocates memory in the four ways that the kernel offers.
func memoryBombs(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{Limits: proto.Limits{MemoryBytes: 128 << 20}})
	if err != nil {
		return "", err
	}
	oom, err := t.ended(ctx, con.ID, "allocation", "exec python3 -c 'x=[]\nwhile 1: x.append(bytearray(1<<20))'", 60,
		proto.EndOutOfMemory, proto.EndExit, proto.EndLost)
	if err != nil {
		return "", err
	}
	// If an allocation fails, the process ends by itself. Any other end must have memory as its reason.
	if end := oom.Exec.End; end.Reason == proto.EndExit && (end.ReturnCode == 0 || oom.Result.Result != nil &&
		!strings.Contains(oom.Result.Result.Stderr, "MemoryError")) || end.Reason == proto.EndLost {
		return "", Breached("a process that took all memory is told as: %s", describe(oom))
	}
	for what, script := range map[string]string{
		"/dev/shm": "head -c 1G /dev/zero >/dev/shm/bomb; r=$?; rm -f /dev/shm/bomb; exit $r",
		// The page cache counts as the container's memory and is released under pressure. So more than the limit may
		// be read.
		"page cache": "head -c 300M /dev/zero >/workspace/bomb && cat /workspace/bomb >/dev/null; rm -f /workspace/bomb",
	} {
		res, err := t.ended(ctx, con.ID, what, script, 60, proto.EndExit, proto.EndOutOfMemory, proto.EndSignal,
			"disk_quota")
		if err != nil {
			return "", err
		}
		if what != "page cache" && res.Exec.End.ReturnCode == 0 {
			return "", Breached("%s took more than the container has", what)
		}
		if _, err := t.Output(ctx, con.ID, proto.UserRoot,
			"rm -f /dev/shm/bomb /workspace/bomb"); err != nil {
			return "", err
		}
	}
	return "told as " + string(oom.Exec.End.Reason) + "; memory file systems are full before the container is",
		t.alive(ctx, con.ID)
}

// cpuSpin checks the CPU time that the kernel counted, not the elapsed time.
func cpuSpin(ctx context.Context, t *Target) (string, error) {
	const cpus, limit = 0.5, 3.0
	con, err := t.Container(ctx, proto.CreateContainer{Limits: proto.Limits{CPUs: cpus}})
	if err != nil {
		return "", err
	}
	res, err := t.ended(ctx, con.ID, "spinning", "for i in 1 2 3 4; do (while :; do :; done) & done; timeout 2 "+
		"python3 -c 'import threading\nfor i in range(100): threading.Timer(1e-3, lambda: None).start()'; wait", limit,
		proto.EndTimeout)
	if err != nil {
		return "", err
	}
	// Twice the limit allows for the scheduler's first period, and one second for the start.
	if used := res.Exec.End.CPUSeconds; used > 2*limit*cpus+1 {
		return "", Breached("it used %.1f CPU seconds in %.0f s at a limit of %.1f", used, limit, cpus)
	}
	for what, script := range map[string]string{
		"a negative nice": "nice -n -20 true 2>&1 | grep -i denied",
		"realtime": "! python3 -c 'import os; os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(50))' " +
			"2>/dev/null",
	} {
		for _, user := range []string{proto.UserDefault, proto.UserRoot} {
			if _, err := t.Output(ctx, con.ID, user, script); err != nil && t.Class == proto.ClassRunc {
				return "", Breached("%s as %s was not refused: %v", what, user, err)
			}
		}
	}
	return fmt.Sprintf("ended after %.0f s, %.1f CPU seconds used", limit, res.Exec.End.CPUSeconds),
		t.alive(ctx, con.ID)
}

// ends runs commands that end by each signal, and with the exit codes that have a meaning in shells.
func ends(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	for _, sig := range []string{"HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV",
		"USR2", "PIPE", "ALRM", "TERM", "XCPU"} {
		res, err := t.ended(ctx, con.ID, "SIG"+sig, "ulimit -c 0; exec /bin/sh -c 'kill -"+sig+" $$; sleep 5'", 20,
			proto.EndSignal)
		if err != nil {
			return "", err
		}
		if res.Exec.End.Signal != "SIG"+sig {
			return "", Breached("SIG%s is told as %s", sig, res.Exec.End.Signal)
		}
	}
	for _, code := range []int{0, 1, 126, 127, 128, 137, 255} {
		res, err := t.ended(ctx, con.ID, "a code", fmt.Sprintf("exit %d", code), 20, proto.EndExit)
		if err != nil || res.Exec.End.ReturnCode != code {
			return "", Breached("code %d is told as %d %v", code, res.Exec.End.ReturnCode, err)
		}
	}
	return t.unrunnable(ctx, con.ID)
}

// unrunnable runs commands that cannot be started. As in every shell, 127 means not found, and 126 not executable.
func (t *Target) unrunnable(ctx context.Context, container string) (string, error) {
	if _, err := t.Output(ctx, container, "", "cd /workspace; echo x >plain; printf '#!/nowhere/at/all\\n' >lost; "+
		"printf '\\177ELF nonsense' >broken; chmod +x lost broken"); err != nil {
		return "", err
	}
	env := map[string]string{}
	// The kernel accepts about a quarter of the stack limit for arguments and environment together, and 128 KiB for
	// one of them.
	for i := range 10_000 {
		env[fmt.Sprint("V", i)] = "x"
	}
	big := strings.Repeat("x", 2<<20)
	for what, cmd := range map[string]proto.Cmd{
		"a missing program":         {Argv: []string{"/workspace/none"}},
		"a file that is no program": {Argv: []string{"/workspace/plain"}},
		"a directory":               {Argv: []string{"/workspace"}},
		"a missing interpreter":     {Argv: []string{"/workspace/lost"}},
		"a broken program":          {Argv: []string{"/workspace/broken"}},
		"an empty program":          {Argv: []string{""}},
		"nothing":                   {},
		"2 MiB of arguments":        {Argv: []string{"true", big}},
		"2 MiB of text":             {Command: ": " + big},
		"10,000 variables":          {Command: "true", Env: env},
		"NUL in an argument":        {Argv: []string{"echo", "a\x00b"}},
		"NUL in a variable":         {Command: "true", Env: map[string]string{"A": "a\x00b"}},
		"NUL in a name":             {Command: "true", Env: map[string]string{"A\x00": "b"}},
		"a name with =":             {Command: "true", Env: map[string]string{"A=B": "b"}},
		"NUL in the text":           {Command: "true\x00false"},
	} {
		cmd.TimeoutSeconds = 20
		res, err := t.Do(ctx, container, cmd)
		if err == nil && res.Exec.End.Reason == proto.EndNotStarted && (res.Exec.End.ReturnCode == 126 ||
			res.Exec.End.ReturnCode == 127) {
			continue
		}
		if _, err := Refused(err, proto.InvalidArgument, proto.TooLarge, proto.NotFound,
			proto.PermissionDenied); err != nil {
			return "", fmt.Errorf("%s: %w (%s)", what, err, describe(res))
		}
	}
	return "16 signals, 7 codes and 15 commands that cannot be run are told as what they are", t.alive(ctx, container)
}

// timeouts runs all of them concurrently: none may delay the end of the others.
func timeouts(ctx context.Context, t *Target) (string, error) {
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	scripts := map[string]string{
		"sleep":           "exec sleep 600",
		"SIGTERM ignored": "trap '' TERM INT HUP; while :; do sleep 600; done",
		"stopped":         "kill -STOP $$; sleep 600",
		"a stopped child": "sleep 600 & kill -STOP $!; wait",
		"a full pipe":     "sleep 600 | yes | sleep 600",
		"vfork": "exec python3 -c 'import os\nos.posix_spawn(\"/bin/sleep\", [\"sleep\", \"600\"], " +
			"{})\nos.wait()'",
		"a FIFO":           "mkfifo /tmp/f$$; cat </tmp/f$$",
		"a terminal asked": "cat /dev/tty; sleep 600",
		"a lock":           "exec 9>/tmp/l; flock 9; flock /tmp/l true",
	}
	var wg sync.WaitGroup
	errs := make(chan error, len(scripts))
	for what, script := range scripts {
		wg.Go(func() {
			res, err := t.ended(ctx, con.ID, what, script, 1, proto.EndTimeout)
			if e := res.Result.Error; err == nil && (e == nil || e.ErrorCode != proto.BlockTimeExceeded) {
				err = Breached("%s: the result block does not say so", what)
			}
			errs <- err
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return "", err
		}
	}
	left, err := t.Output(ctx, con.ID, "", "ps -eo args | grep -c '[s]leep 600'; true")
	if err != nil || left != "0" {
		return "", Breached("%s processes are left; %v", left, err)
	}
	return fmt.Sprintf("%d commands that would not end were ended", len(scripts)), nil
}
