package attack

import (
	"context"
	"fmt"
	"strings"

	"berth/proto"
)

// Group 35: a tenant must not get another tenant's objects. Two customers on one host must not know of each other.
// Namespaces separate most things. This group checks what has no namespace, or is reused.
var _ = register(
	// These names are global without a namespace: abstract sockets belong to the network namespace, System V objects
	// to the IPC namespace.
	Case{
		Group: 35, Name: "tenants/kernel-objects", Inside: true,
		Tries: "find in one tenant's container what another one holds: processes, abstract sockets, shared memory, " +
			"message queues, semaphores, /tmp, /dev/shm, terminals",
		Wants: "nothing of the other one is to be seen",
		Run:   kernelObjects,
	},
	// The kernel compares numbers of users. Containers that share them can reach each other through whatever they share
	// beside, and a container with a number of the host acts as that user.
	Case{
		Group: 35, Name: "tenants/identities", Inside: true,
		Tries: "compare the numbers that the kernel has for the users of two tenants' containers, with each other " +
			"and with those of the host",
		Wants: "no user of one is a user of the other, or of the host",
		Run:   identities,
	},
	// Shared machines often leak what is passed on without being cleared: disks, memory, home directories.
	Case{
		Group: 35, Name: "tenants/leftovers", Inside: true,
		Tries: "look in a fresh container for what the one before it wrote to its root, its workspace, /tmp, " +
			"/dev/shm and its user's home",
		Wants: "nothing is left",
		Run:   leftovers,
	},
	// Each route must check the owner; one that does not is enough for an attack.
	Case{
		Group: 35, Name: "tenants/identifiers",
		Tries: "use another tenant's container, execs, files, jobs and workspace by their IDs, with every verb",
		Wants: "each is not found",
		Run:   foreignIDs,
	},
	// Of two containers on one workspace, one could swap what the other is mounting.
	Case{
		Group: 35, Name: "tenants/shared-workspace",
		Tries: "mount one workspace into two live containers, which is how races against mounts are run",
		Wants: "the second container is refused",
		Run: func(ctx context.Context, t *Target) (string, error) {
			con, err := t.Container(ctx, proto.CreateContainer{})
			if err != nil {
				return "", err
			}
			_, err = t.Container(ctx, proto.CreateContainer{WorkspaceID: con.WorkspaceID})
			return Refused(err, proto.Conflict)
		},
	},
)

// holdObjects holds one of each object that containers might share, and prints that. 240 is mq_open on amd64.
const holdObjects = `
import ctypes, os, socket, sys, time
libc = ctypes.CDLL(None)
s = socket.socket(socket.AF_UNIX); s.bind("\0berth-attack-secret"); s.listen()
m = libc.shmget(4711, 4096, 0o1666); q = libc.msgget(4711, 0o1666); sem = libc.semget(4711, 1, 0o1666)
open("/tmp/berth-attack-secret", "w").write("secret"); open("/dev/shm/berth-attack-secret", "w").write("secret")
mq = libc.syscall(240, b"berth-attack-secret", 0o102, 0o666, None)
print("holding", m, q, sem, mq); sys.stdout.flush()
time.sleep(60)
`

// findObjects looks for each of them. If an existing ID is refused or not found, that is no finding.
const findObjects = `
import ctypes, os, socket
libc = ctypes.CDLL(None)
found = []
try: socket.socket(socket.AF_UNIX).connect("\0berth-attack-secret"); found.append("abstract socket")
except OSError: pass
for f, a in (("shmget", (4711, 4096, 0)), ("msgget", (4711, 0)), ("semget", (4711, 1, 0))):
    if getattr(libc, f)(*a) >= 0: found.append(f)
if libc.syscall(240, b"berth-attack-secret", 2, 0, None) >= 0: found.append("message queue")
for d in ("/tmp", "/dev/shm", "/workspace", "/dev/mqueue", "/root", "/home/user", "/var/tmp", "/"):
    try: found += [d + "/" + n for n in os.listdir(d) if "secret" in n]
    except OSError: pass
for p in os.listdir("/proc"):
    try:
        if p.isdigit() and b"holding" in open("/proc/%s/cmdline" % p, "rb").read() and p != str(os.getpid()): found.append("process " + p)
    except OSError: pass
print(",".join(found) or "nothing")
`

// kernelObjects holds one of each in a neighbour's container and looks for them from another tenant's container.
func kernelObjects(ctx context.Context, t *Target) (string, error) {
	neighbour, err := t.Neighbour(ctx)
	if err != nil {
		return "", err
	}
	victim, err := neighbour.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	con, err := t.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	e, err := neighbour.Launch(ctx, victim.ID, proto.Cmd{Argv: []string{"python3", "-c", holdObjects},
		TimeoutSeconds: 60})
	if err != nil {
		return "", err
	}
	held, err := neighbour.firstLine(ctx, victim.ID, e.ID)
	if err != nil {
		return "", err
	}
	for _, user := range asBoth {
		res, err := t.Do(ctx, con.ID, proto.Cmd{Argv: []string{"python3", "-c", findObjects}, User: user,
			TimeoutSeconds: 30})
		if err != nil {
			return "", err
		}
		if r := res.Result.Result; r == nil || r.ReturnCode != 0 {
			return "", fmt.Errorf("looking did not end well: %s", describe(res))
		} else if got := strings.TrimSpace(r.Stdout); got != "nothing" {
			return "", Breached("%s found %s of another tenant's", user, got)
		}
	}
	return "the neighbour was " + held + ", and nothing of it was found", nil
}

// leftovers uses three containers, one after the other. Each looks for leftovers and then leaves something.
func leftovers(ctx context.Context, t *Target) (string, error) {
	for range 3 {
		con, err := t.Container(ctx, proto.CreateContainer{})
		if err != nil {
			return "", err
		}
		got, err := t.Output(ctx, con.ID, proto.UserRoot,
			`find / -xdev -name 'berth-attack-left*' 2>/dev/null; ls -A /workspace /tmp /dev/shm | grep left
			for d in / /workspace /tmp /dev/shm /home/user /root /.berth/run /var/tmp /etc; do echo secret > $d/berth-attack-left; done; true`)
		if err != nil {
			return "", err
		}
		if got != "" {
			return "", Breached("a fresh container has %s", got)
		}
		if _, err := t.Delete(ctx, con.ID, false); err != nil {
			return "", err
		}
	}
	return "three containers after one another had nothing of each other", nil
}

// foreignIDs uses the IDs of another tenant on each route that takes one.
func foreignIDs(ctx context.Context, t *Target) (string, error) {
	neighbour, err := t.Neighbour(ctx)
	if err != nil {
		return "", err
	}
	victim, err := neighbour.Container(ctx, proto.CreateContainer{})
	if err != nil {
		return "", err
	}
	// A job is known, and its files can be published, only after a command of it has ended.
	if _, err := neighbour.Output(ctx, victim.ID, "", "echo x >kept"); err != nil {
		return "", err
	}
	e, err := neighbour.Launch(ctx, victim.ID, proto.Cmd{Command: "exec sleep 60"})
	if err != nil {
		return "", err
	}
	if err := t.foreignRetry(ctx, neighbour); err != nil {
		return "", err
	}
	base, exec := "/v1/containers/"+victim.ID, "/v1/containers/"+victim.ID+"/execs/"+e.ID
	tried := 0
	for _, r := range []struct {
		method, path string
		body         any
	}{
		{"GET", base, nil}, {"DELETE", base, nil}, {"POST", base + "/extend", map[string]int{"seconds": 60}},
		{"POST", base + "/start", nil}, {"POST", base + "/stop", nil},
		{"POST", base + "/exec", map[string]string{"command": "id"}}, {"GET", base + "/execs", nil}, {"GET", exec, nil},
		{"GET", exec + "/result", nil},
		{"GET", exec + "/logs", nil}, {"GET", exec + "/events", nil}, {"POST", exec + "/signal", map[string]string{
			"signal": "SIGKILL"}},
		{"GET", base + "/shells", nil}, {"GET", base + "/fs/list?path=/", nil},
		{"GET", base + "/fs/content?path=/etc/passwd", nil}, {"GET", base + "/fs/stat?path=/", nil},
		{"GET", base + "/fs/tar?path=/etc", nil}, {"DELETE", base + "/fs/content?path=/tmp", nil},
		{"POST", base + "/fs/mkdir", map[string]string{"path": "/tmp/x"}},
		{"POST", base + "/fs/move", map[string]string{"from": "/etc", "to": "/tmp/y"}}, {"GET", base + "/jobs", nil},
		{"GET", base + "/jobs/" + e.JobID + "/manifest", nil}, {"GET", base + "/jobs/" + e.JobID + "/tar", nil},
		{"POST", base + "/jobs/" + e.JobID + "/publish", map[string]string{"path": "kept"}},
		{"POST", base + "/inputs", map[string][]string{"files": {}}}, {"GET", base + "/contexts", nil},
		{"GET", base + "/tool_calls", nil}, {"POST", base + "/pause", nil},
		{"POST", base + "/tool_use", map[string]any{"type": "tool_use", "id": "1", "name": "bash",
			"input": map[string]string{"command": "id"}}},
		{"DELETE", "/v1/workspaces/" + victim.WorkspaceID, nil},
		{"POST", "/v1/containers", map[string]string{"workspace_id": victim.WorkspaceID}},
	} {
		path, query, _ := strings.Cut(r.path, "?")
		if query != "" {
			path += "?" + query
		}
		got, err := t.askJSON(ctx, r.method, path, r.body)
		if r.body == nil {
			got, err = t.ask(ctx, r.method, path, nil, nil)
		}
		if err != nil {
			return "", err
		}
		if err := got.refused(r.method+" "+r.path, proto.NotFound); err != nil {
			return "", err
		}
		tried++
	}
	// The neighbour's container must not be affected.
	if now, err := neighbour.Client.Container(ctx, victim.ID); err != nil || now.State != proto.StateRunning ||
		now.RunningExecs != 1 {
		return "", Breached("the neighbour's container is %s with %d commands: %v", now.State, now.RunningExecs, err)
	}
	return fmt.Sprintf("%d requests with another tenant's IDs were not found", tried), nil
}

// foreignRetry repeats another tenant's create with the same idempotency key and body. The answer must not be theirs.
func (t *Target) foreignRetry(ctx context.Context, neighbour *Target) error {
	key, ids := unique("attack-"), [2]string{}
	for i, who := range []*Target{neighbour, t} {
		a, err := who.ask(ctx, "POST", "/v1/containers", nil, strings.NewReader("{}"), "Content-Type",
			"application/json", "Idempotency-Key", key)
		if err != nil {
			return err
		}
		var con proto.Container
		if err := a.decode(&con); err != nil || con.ID == "" {
			return fmt.Errorf("creating a container: %d %.200s", a.status, a.body)
		}
		who.made, ids[i] = append(who.made, con.ID), con.ID
	}
	if ids[0] == ids[1] {
		return Breached("another tenant's idempotency key gave their container %s", ids[0])
	}
	return nil
}

// hostUsers is how many user IDs a host has for itself, at least.
const hostUsers = 65536

// identities asks the kernel inside both containers. A user-space kernel has numbers of its own, so the daemon's word
// about the host is compared as well.
func identities(ctx context.Context, t *Target) (string, error) {
	n, err := t.Neighbour(ctx)
	if err != nil {
		return "", err
	}
	var said []string
	var ranges [][2]int64
	for _, who := range []*Target{t, n} {
		con, err := who.Container(ctx, proto.CreateContainer{})
		if err != nil {
			return "", err
		}
		ids, err := who.Output(ctx, con.ID, "", "cat /proc/self/uid_map /proc/self/gid_map; "+
			"grep -c gvisor /proc/version; true")
		if err != nil {
			return "", err
		}
		fields := strings.Fields(ids)
		if len(fields) != 7 {
			return "", Breached("the users of a container have several ranges: %q", ids)
		}
		lists := [][2]string{{fields[1], fields[2]}, {fields[4], fields[5]}}
		if fields[6] != "0" { // gVisor: the ranges are its own
			lists = [][2]string{{fmt.Sprint(con.Isolation.HostUID), fmt.Sprint(hostUsers)}}
		}
		for _, text := range lists {
			var first, count int64
			if _, err := fmt.Sscan(text[0]+" "+text[1], &first, &count); err != nil {
				return "", fmt.Errorf("reading %q: %w", ids, err)
			}
			if first < hostUsers {
				return "", Breached("users of a container are the host's users from %d on", first)
			}
			ranges, said = append(ranges, [2]int64{first, first + count}), append(said, text[0])
		}
	}
	half := len(ranges) / 2
	for i := range half {
		if a, b := ranges[i], ranges[half+i]; a[0] < b[1] && b[0] < a[1] {
			return "", Breached("both tenants have the host's users %d to %d", max(a[0], b[0]), min(a[1], b[1])-1)
		}
	}
	return "they begin at " + strings.Join(said, ", "), nil
}
