package daemon_test

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"berth/proto"

	"github.com/gorilla/websocket"
)

var (
	crashRounds = flag.Int("crash.rounds", 10, "how often the crash test kills the daemon")
	crashSeed   = flag.Uint64("crash.seed", 0, "of the crash test; 0 takes one from the clock and says it")
)

// maxOwn is the maximum number of containers, and of stored files, of one worker.
const maxOwn = 3

// TestCrashes kills the daemon at random moments under load. Afterwards it compares the daemon's state with the
// workers' records. Acknowledged items must exist, unacknowledged ones may, and nothing else.
func TestCrashes(t *testing.T) {
	seed := *crashSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-crash.seed=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 1))
	c := &crash{server: base, seen: map[string]bool{}}
	for i := range 6 {
		class := proto.ClassRunc
		if i == 0 {
			class = proto.ClassGVisor
		}
		c.workers = append(c.workers, &worker{crash: c, class: class, rnd: rand.New(rand.NewPCG(seed, uint64(i+2))),
			own: map[string]*ownContainer{}, files: map[string]string{}, spaces: map[string]*ownContainer{},
			keys: map[string]string{}, snaps: map[string]books{}})
	}
	// prestarted for code by earlier tests
	for _, con := range call[struct{ Data []proto.Container }](t, base, 200, "GET", "/v1/containers", "").Data {
		call[any](t, base, 200, "DELETE", "/v1/containers/"+con.ID, "")
	}
	// creates what is made once and kept
	for _, w := range c.workers[:2] {
		w.create(t)
	}
	c.empty(t)
	c.awaitWarm(t)
	before := c.left(t)
	for n := range *crashRounds {
		c.round(t, n, rnd)
		if t.Failed() {
			t.Fatalf("round %d", n)
		}
	}
	c.empty(t)
	c.checkNothingLeft(t, before)
	t.Logf("%d rounds, %d acknowledged operations, %d cut off, %d starts killed, slowest start %v", *crashRounds,
		c.acked.Load(), c.cut.Load(), c.startsKilled, c.slowest)
}

// A crash is a daemon that is killed, with its workers.
type crash struct {
	*server
	workers      []*worker
	killed       atomic.Bool // the daemon is dead or about to be killed
	acked, cut   atomic.Int64
	made         []string        // all containers ever created; guarded by mu
	seen         map[string]bool // all sandboxes ever seen
	startsKilled int
	slowest      time.Duration // slowest start
	mu           sync.Mutex
}

func (c *crash) round(t *testing.T, n int, rnd *rand.Rand) {
	c.killed.Store(false)
	var wg sync.WaitGroup
	for _, w := range c.workers {
		wg.Go(func() { w.work(t) })
	}
	time.Sleep(time.Duration(20+rnd.IntN(1200)) * time.Millisecond) // a random moment, which is the point of the test
	c.killed.Store(true)
	c.see(t)
	c.Stop(syscall.SIGKILL)
	wg.Wait()
	http.DefaultClient.CloseIdleConnections()
	for rnd.IntN(3) == 0 { // kill it again during the recovery
		c.startsKilled++
		if err := c.StartKilled(time.Duration(rnd.IntN(400)) * time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	c.slowest = max(c.slowest, time.Since(begin))
	for _, w := range c.workers {
		wg.Go(func() { w.check(t) })
	}
	wg.Wait()
	c.checkUnknown(t)
	c.checkSpaces(t)
	c.checkHost(t)
}

// A worker uses the daemon and records what was acknowledged. No other worker touches its items.
type worker struct {
	*crash
	class   proto.RuntimeClass
	rnd     *rand.Rand
	own     map[string]*ownContainer
	files   map[string]string        // stored files: ID to hash of the content
	stopped map[string]bool          // containers that were requested to stop in this round
	gone    []string                 // IDs with an acknowledged deletion
	spaces  map[string]*ownContainer // by workspace: deleted containers whose workspace was kept
	keys    map[string]string        // API keys: ID to secret
	revoked []string                 // secrets of revoked keys
	snaps   map[string]books         // snapshots
	creates []string                 // bodies of interrupted requests for a container, with an idempotency key
	maybe   struct {                 // unacknowledged at the end of a round
		creates, uploads, snaps int
		deleted                 map[string]bool // containers, files, API keys and snapshots
		parted                  map[string]bool // containers deleted without their workspace
	}
}

// An ownContainer is a worker's record of a container.
type ownContainer struct {
	id, workspace string
	again         bool // its workspace belonged to an earlier container, and is kept
	books
	background  map[string]string // token to exec
	pending     []pending
	told        []string  // execs reported as successful
	expires     time.Time // earliest expiry
	generation  int64     // at the last check; 0 before the first
	counting    bool      // its counter runs
	maybeCounts bool      // its counter may run
	restored    *restored // by a request that was interrupted
}

// work performs random operations until the daemon is killed.
func (w *worker) work(t *testing.T) {
	w.maybe.deleted, w.maybe.parted, w.stopped = map[string]bool{}, map[string]bool{}, map[string]bool{}
	for !w.killed.Load() {
		if len(w.own) == 0 || len(w.own) < maxOwn && w.rnd.IntN(6) == 0 {
			w.more(t)
			continue
		}
		o := w.pick()
		switch n := w.rnd.IntN(30); {
		case n < 6:
			w.exec(t, o)
		case n < 8:
			w.background(t, o)
		case n < 10:
			w.live(t, o)
		case n < 13:
			w.write(t, o)
		case n < 15:
			w.upload(t)
		case n == 15:
			w.deleteFile(t)
		case n == 16:
			w.extend(t, o)
		case n == 17:
			w.stop(t, o)
		case n == 18 && len(w.own) == maxOwn && !o.again:
			w.delete(t, o)
		case n <= 19 && n >= 18 && len(w.own) == maxOwn:
			w.part(t, o)
		case n < 22 && n >= 20:
			w.keyed(t, o)
		case n == 22:
			w.turnKeys(t)
		case n >= 23 && n < 26:
			w.snapshot(t, o)
		case n >= 26 && n < 28:
			w.restore(t, o)
		case n == 28:
			w.fork(t, o)
		default:
			w.exec(t, o)
		}
	}
}

func (w *worker) pick() *ownContainer {
	n := w.rnd.IntN(len(w.own))
	for _, o := range w.own {
		if n--; n < 0 {
			return o
		}
	}
	panic("none")
}

// request sends a request and reports whether it was acknowledged. An unexpected answer of a living daemon fails the
// test.
func (w *worker) request(t *testing.T, want int, method, path, body string, into any) bool {
	var reader interface{ Read([]byte) (int, error) } = strings.NewReader(body)
	if method == "PUT" {
		reader = struct{ *strings.Reader }{strings.NewReader(body)} // a type that marks the body as not JSON
	}
	status, out, err := w.Do(method, path, reader)
	if err == nil && status == want && into != nil {
		err = json.Unmarshal(out, into)
	}
	switch {
	case err != nil:
		w.cut.Add(1)
		if !w.killed.Load() {
			t.Errorf("%s %s: %v", method, path, err)
		}
		return false
	case status != want:
		t.Errorf("%s %s: %d %s", method, path, status, out)
		return false
	}
	w.acked.Add(1)
	return true
}

// more creates a container in one of several ways.
func (w *worker) more(t *testing.T) {
	switch {
	case len(w.spaces) > 0:
		w.rejoin(t)
	case w.rnd.IntN(2) == 0:
		w.createOnce(t)
	default:
		w.create(t)
	}
}

// theSecret is a secret of every worker's container.
const theSecret = "crash-secret-of-theirs"

func (w *worker) wanted() string {
	return fmt.Sprintf(
		`{"runtime_class":%q,"limits":{"memory_bytes":134217728,"disk_bytes":67108864},"secrets":{"SECRET":%q}}`,
		w.class, theSecret)
}

func (w *worker) create(t *testing.T) {
	var made proto.Container
	if !w.request(t, 201, "POST", "/v1/containers", w.wanted(), &made) {
		w.maybe.creates++
		return
	}
	w.adopt(made)
}

func (w *worker) adopt(made proto.Container) *ownContainer {
	w.mu.Lock()
	w.made = append(w.made, made.ID)
	w.mu.Unlock()
	o := &ownContainer{id: made.ID, workspace: made.WorkspaceID, books: newBooks(), background: map[string]string{}}
	w.own[made.ID] = o
	return o
}

// token returns a command that leaves a unique mark each time it runs, in the workspace and in the layer.
func (w *worker) token(o *ownContainer) (token, command string) {
	token = fmt.Sprintf("t%x", w.rnd.Uint64())
	o.tokens[token], o.layer[token] = false, true
	return token, "echo " + token + " >>/workspace/tokens; echo " + token + " >>/tmp/tokens"
}

func (w *worker) exec(t *testing.T, o *ownContainer) {
	token, command := w.token(o)
	var res proto.ExecResult
	if w.request(t, 200, "POST", "/v1/containers/"+o.id+"/exec", fmt.Sprintf(`{"command":%q}`, command), &res) {
		o.tokens[token] = w.ran(t, res)
	}
}

func (w *worker) ran(t *testing.T, res proto.ExecResult) bool {
	if res.Exec.End == nil || res.Exec.End.Reason != proto.EndExit || res.Exec.End.ReturnCode != 0 {
		t.Errorf("exec %s ended as %+v", res.Exec.ID, res.Exec.End)
		return false
	}
	if o := w.own[res.Container.ID]; o != nil {
		o.told = append(o.told, res.Exec.ID)
	}
	return true
}

// spoken is the output of a background command. It takes about a second, mostly after the daemon's end.
const spoken = "1\n2\n3\n4\n5\n6\nsaid\n"

func (w *worker) background(t *testing.T, o *ownContainer) {
	token, command := w.token(o)
	var x proto.Exec
	command += fmt.Sprintf("; for i in 1 2 3 4 5 6; do echo $i; sleep 0.%d; done; echo said", w.rnd.IntN(3))
	if w.request(t, 202, "POST", "/v1/containers/"+o.id+"/exec", fmt.Sprintf(`{"command":%q,"background":true}`,
		command), &x) {
		o.background[token] = x.ID
	}
}

// live runs a command over the websocket.
func (w *worker) live(t *testing.T, o *ownContainer) {
	conn, _, err := websocket.DefaultDialer.Dial(strings.Replace(w.URL, "http", "ws", 1)+"/v1/containers/"+o.id+"/live",
		http.Header{"X-Api-Key": {w.Key}})
	if err != nil {
		w.failed(t, "opening a websocket", err)
		return
	}
	defer conn.Close()
	token, command := w.token(o)
	if err := conn.WriteJSON(map[string]any{"type": "exec", "ref": "r", "cmd": map[string]any{
		"command": command}}); err != nil {
		w.failed(t, "asking over a websocket", err)
		return
	}
	for {
		var ev proto.Event
		if err := conn.ReadJSON(&ev); err != nil {
			w.failed(t, "reading a websocket", err)
			return
		}
		switch ev.Type {
		case proto.EventExit:
			o.tokens[token] = w.ran(t, *ev.Result)
			w.acked.Add(1)
			return
		case proto.EventError:
			t.Errorf("over the websocket: %+v", ev)
			return
		}
	}
}

// failed reports an error, unless the daemon was killed.
func (w *worker) failed(t *testing.T, what string, err error) {
	w.cut.Add(1)
	if !w.killed.Load() {
		t.Errorf("%s: %v", what, err)
	}
}

func (w *worker) write(t *testing.T, o *ownContainer) {
	name, content := fmt.Sprintf("f%d", w.rnd.IntN(4)), w.content()
	hash := hashOf(content)
	o.files[name] = append(o.files[name], hash)
	if len(o.files[name]) == 1 {
		o.files[name] = append(o.files[name], "")
	}
	if w.request(t, 200, "PUT", "/v1/containers/"+o.id+"/fs/content?path=/workspace/up/"+name, content, nil) {
		o.files[name] = []string{hash}
	}
}

func (w *worker) content() string {
	b := make([]byte, 1+w.rnd.IntN(200<<10))
	for i := range b {
		b[i] = byte(w.rnd.Uint32())
	}
	return string(b)
}

func hashOf(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

func (w *worker) upload(t *testing.T) {
	if len(w.files) == maxOwn {
		w.deleteFile(t)
		return
	}
	content := w.content()
	status, out, err := w.uploadFile("crash.bin", content)
	var f struct{ ID string }
	if err == nil && status == 200 {
		err = json.Unmarshal(out, &f)
	}
	switch {
	case err != nil:
		w.maybe.uploads++
		w.failed(t, "uploading", err)
	case status != 200:
		t.Errorf("uploading: %d %s", status, out)
	default:
		w.acked.Add(1)
		w.files[f.ID] = hashOf(content)
	}
}

func (w *worker) deleteFile(t *testing.T) {
	for id := range w.files {
		w.maybe.deleted[id] = true
		if w.request(t, 200, "DELETE", "/v1/files/"+id, "", nil) {
			delete(w.files, id)
			w.gone = append(w.gone, "/v1/files/"+id)
		}
		return
	}
}

func (w *worker) extend(t *testing.T, o *ownContainer) {
	var got proto.Container
	if w.request(t, 200, "POST", "/v1/containers/"+o.id+"/extend", fmt.Sprintf(`{"seconds":%d}`, 600+w.rnd.IntN(6000)),
		&got) {
		o.expires = got.ExpiresAt.Time
	}
}

func (w *worker) stop(t *testing.T, o *ownContainer) {
	w.stopped[o.id] = true
	o.endCounter(w.request(t, 200, "POST", "/v1/containers/"+o.id+"/stop", "", nil))
}

func (w *worker) delete(t *testing.T, o *ownContainer) {
	w.maybe.deleted[o.id] = true
	if w.request(t, 200, "DELETE", "/v1/containers/"+o.id, "", nil) {
		delete(w.own, o.id)
		w.gone = append(w.gone, "/v1/containers/"+o.id)
	}
}
