package messages_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"berth/gateway"
	"berth/gateway/messages"
	"berth/gateway/upstream"
	"berth/state/ledger"
)

// bigHistory is a request of about size bytes: turns of a user, a command, its result and a text, whose texts have
// block bytes.
func bigHistory(model string, size, block int) []byte {
	text := strings.Repeat("The quick brown fox\njumps over \"the\" lazy dog. ", 1+block/40)[:block]
	var list []any
	for n, i := 0, 0; n < size; i++ {
		id := fmt.Sprintf("srvtoolu_%06d", i)
		content := []any{
			map[string]any{"type": "server_tool_use", "id": id, "name": "bash_code_execution",
				"input": map[string]any{"command": text}},
			map[string]any{"type": "bash_code_execution_tool_result", "tool_use_id": id, "content": map[string]any{
				"type": "bash_code_execution_result", "stdout": text, "stderr": "", "return_code": 0, "content": []any{}}},
			map[string]any{"type": "text", "text": text},
		}
		list = append(list, map[string]any{"role": "user", "content": []any{map[string]any{"type": "text",
			"text": text}}}, map[string]any{"role": "assistant", "content": content})
		n += 4*block + 450
	}
	list = append(list, map[string]any{"role": "user", "content": "go on"})
	raw, err := json.Marshal(map[string]any{"model": model, "max_tokens": 100, "messages": list,
		"tools": []any{map[string]any{"type": "code_execution_20250825", "name": "code_execution"}}})
	if err != nil {
		panic(err)
	}
	return raw
}

// newBigSite is a service over upstreams that answer every request at once.
func newBigSite(t testing.TB) *messages.Service {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/json")
		if r.URL.Path == "/v1/messages" {
			fmt.Fprint(w, `{"id":"msg_1","type":"message","role":"assistant","model":"m","content":[{"type":"text","text":"ok"}],"stop_reason":"end_turn","usage":{}}`)
			return
		}
		fmt.Fprint(w, `{"choices":[{"index":0,"message":{"role":"assistant","content":"ok"},"finish_reason":"stop"}]}`)
	}))
	t.Cleanup(web.Close)
	set, err := upstream.Open([]upstream.Config{{URL: web.URL}, {URL: web.URL, Kind: upstream.KindOpenAI,
		Prefixes: []string{"chat/"}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { set.Close() })
	db, err := ledger.Open(filepath.Join(t.TempDir(), "ledger.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	turns := gateway.New(gateway.Config{Ledger: db})
	t.Cleanup(func() { turns.Close() })
	return messages.New(messages.Config{Turns: turns, Upstreams: set})
}

func answerBig(t testing.TB, s *messages.Service, body []byte) {
	w := httptest.NewRecorder()
	err := s.Answer(t.Context(), w, messages.Request{Owner: "o", Path: "/v1/messages", Header: http.Header{},
		Body: body}, func(error) any { return nil })
	if err != nil || w.Code != http.StatusOK || !bytes.Contains(w.Body.Bytes(), []byte(`"ok"`)) {
		t.Fatalf("%v %d %.500s", err, w.Code, w.Body)
	}
}

// cpuTime is what the process has used.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkBigHistories shows the CPU time for a megabyte of a request, with that of the upstream, which reads it, and
// how much memory a request takes for each byte of its body.
func BenchmarkBigHistories(b *testing.B) {
	for _, model := range []string{"m", "chat/m"} {
		for _, block := range []int{40, 2400, 1 << 20} {
			b.Run(fmt.Sprintf("model=%s/block=%d", model, block), func(b *testing.B) {
				s, body := newBigSite(b), bigHistory(model, 5<<20, block)
				b.SetBytes(int64(len(body)))
				b.ReportAllocs()
				runtime.GC()
				begin := cpuTime()
				for b.Loop() {
					answerBig(b, s, body)
				}
				spent := cpuTime() - begin
				b.ReportMetric(float64(spent)/1e6/float64(b.N)/(float64(len(body))/1e6), "cpu-ms/MB")
			})
		}
	}
}

// TestBigHistoriesTakeBoundedMemory checks how much memory is allocated for each byte of a body, including the copy
// that the upstream gets.
func TestBigHistoriesTakeBoundedMemory(t *testing.T) {
	for _, c := range []struct {
		model        string
		block, times int
	}{{"m", 100, 6}, {"m", 2400, 2}, {"m", 1 << 20, 4}, {"chat/m", 100, 10}, {"chat/m", 2400, 6},
		{"chat/m", 1 << 20, 5}} {
		s, body := newBigSite(t), bigHistory(c.model, 4<<20, c.block)
		answerBig(t, s, body) // connects
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		answerBig(t, s, body)
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > uint64(c.times*len(body)) {
			t.Errorf("%s, blocks of %d bytes: %d bytes were allocated for a body of %d", c.model, c.block, took, len(body))
		} else {
			t.Logf("%s, blocks of %d bytes: %.1f times the body", c.model, c.block, float64(took)/float64(len(body)))
		}
	}
}
