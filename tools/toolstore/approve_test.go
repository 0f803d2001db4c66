package toolstore_test

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"time"

	"berth/proto"
	"berth/tools/toolstore"
)

// parked starts a run that waits for approval.
func (b *bench) parked(t *testing.T, in string) toolstore.Run {
	t.Helper()
	run, _, err := b.Run(context.Background(), owner, "careful", toolstore.RunRequest{Input: json.RawMessage(in)})
	if err != nil || run.State != proto.RunParked || run.ExpiresAt == nil || run.StartedAt != nil {
		t.Fatalf("%+v %v", run, err)
	}
	return run
}

func (b *bench) careful(t *testing.T) {
	t.Helper()
	b.make(t, tool("careful", "def run(input): return {'did': input['what']}", review,
		input(toolstore.Field{Name: "what", FieldType: "STRING", Required: true}),
		env(map[string]string{"TOKEN": "careful-token"})))
}

func (b *bench) await(t *testing.T, id string) toolstore.Run {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	run, err := b.Await(ctx, owner, id)
	if err != nil || run.State == proto.RunRunning {
		t.Fatalf("%+v %v", run, err)
	}
	return run
}

func TestApprovalSurvivesARestart(t *testing.T) {
	b := newBench(t, toolstore.Config{})
	b.careful(t)
	run := b.parked(t, `{"what": "uses careful-token"}`)
	if string(run.Input) != `{"what":"uses [redacted]"}` {
		t.Errorf("%s", run.Input)
	}
	b.reopen(t)
	ctx := proto.WithCaller(context.Background(), proto.Caller{Owner: owner, KeyID: "key_approver"})
	if now, err := b.Approve(ctx, owner, run.ID); err != nil || now.State != proto.RunRunning ||
		now.Decision.By != "key_approver" {
		t.Fatalf("%+v %v", now, err)
	}
	_, err := b.Approve(ctx, owner, run.ID)
	refused(t, err, proto.Conflict, run.ID, "an approval is for one run")
	done := b.await(t, run.ID)
	if done.State != proto.RunSucceeded || !strings.Contains(string(done.Output), "uses [redacted]") ||
		done.Decision.By != "key_approver" {
		t.Errorf("%+v %+v %s", done.State, done.Error, done.Output)
	}
	if next := b.parked(t, `{"what": "again"}`); next.ID == run.ID {
		t.Error("one approval unlocked another run")
	}
	if _, err := b.Approve(ctx, "other", run.ID); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("another owner may approve: %v", err)
	}
}

func TestOneOfManyApprovalsWins(t *testing.T) {
	b := newBench(t, toolstore.Config{})
	b.careful(t)
	run := b.parked(t, `{"what": "it"}`)
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 8 {
		wg.Go(func() {
			var err error
			if i%2 == 0 {
				_, err = b.Approve(context.Background(), owner, run.ID)
			} else {
				_, err = b.Refuse(context.Background(), owner, run.ID, toolstore.Refusal{})
			}
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if proto.CodeOf(err) != proto.Conflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if b.await(t, run.ID); won != 1 {
		t.Errorf("%d decisions about one run", won)
	}
}

func TestRefusedAndExpired(t *testing.T) {
	now := time.Now()
	b := newBench(t, toolstore.Config{ParkTime: time.Hour, Now: func() time.Time { return now }})
	b.careful(t)
	no, late, gone := b.parked(t, `{"what": "no"}`), b.parked(t, `{"what": "late"}`), b.parked(t, `{"what": "gone"}`)
	if run, err := b.Refuse(context.Background(), owner, no.ID, toolstore.Refusal{Reason: "not today"}); err != nil ||
		run.State != proto.RunRefused || run.Decision.Reason != "not today" {
		t.Errorf("%+v %v", run, err)
	}
	_, err := b.Approve(context.Background(), owner, no.ID)
	refused(t, err, proto.Conflict, no.ID, "is refused")
	now = now.Add(2 * time.Hour)
	_, err = b.Approve(context.Background(), owner, late.ID)
	refused(t, err, proto.Expired, late.ID, "has passed")
	if done, err := b.Sweep(context.Background()); err != nil || done.Expired != 2 {
		t.Errorf("%+v %v", done, err)
	}
	if run, _ := b.GetRun(owner, late.ID); run.State != proto.RunExpired {
		t.Errorf("%+v", run)
	}
	if run, _ := b.GetRun(owner, gone.ID); run.State != proto.RunExpired {
		t.Errorf("%+v", run)
	}
	again := b.parked(t, `{"what": "deleted"}`)
	if _, err := b.Delete(context.Background(), owner, "careful"); err != nil {
		t.Fatal(err)
	}
	if run, _ := b.GetRun(owner, again.ID); run.State != proto.RunRefused ||
		run.Decision.Reason != "the tool was deleted" {
		t.Errorf("%+v", run)
	}
	now = now.Add(31 * 24 * time.Hour)
	if done, err := b.Sweep(context.Background()); err != nil || done.Forgotten != 4 {
		t.Errorf("%+v %v", done, err)
	}
	if _, err := b.GetRun(owner, no.ID); proto.CodeOf(err) != proto.NotFound {
		t.Errorf("%v", err)
	}
}

func TestARunUnderARestartIsLost(t *testing.T) {
	b := newBench(t, toolstore.Config{})
	b.make(t, tool("slow", "import time\ndef run(input):\n    time.sleep(60)"))
	run, _, err := b.Run(context.Background(), owner, "slow", toolstore.RunRequest{Background: true})
	if err != nil || run.State != proto.RunRunning {
		t.Fatalf("%+v %v", run, err)
	}
	b.reopen(t)
	if run, err = b.GetRun(owner, run.ID); err != nil || run.State != proto.RunLost || run.Error.Type != "lost" {
		t.Errorf("%+v %v", run, err)
	}
}

// TestRunWaitsEvenIfDecidedAtOnce checks that the answer says that the run waits for approval, also when the decision
// comes at once.
func TestRunWaitsEvenIfDecidedAtOnce(t *testing.T) {
	b := newBench(t, toolstore.Config{})
	b.careful(t)
	stop, over := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(over)
		for {
			select {
			case <-stop:
				return
			default:
			}
			waiting, _, _ := b.Runs(owner, toolstore.Filter{State: proto.RunParked})
			for _, run := range waiting {
				_, _ = b.Refuse(context.Background(), owner, run.ID, toolstore.Refusal{})
			}
		}
	}()
	defer func() { close(stop); <-over }()
	for range 200 {
		b.parked(t, `{"what": "waits"}`)
	}
}

// The audit log has that a run waits before anybody has decided about it, however fast the decision is.
func TestParkedIsToldBeforeTheDecision(t *testing.T) {
	var b *bench
	decided := make(chan error, 1)
	b = newBench(t, toolstore.Config{Audit: func(e proto.AuditEntry) {
		if e.Act != "tool_run.park" {
			return
		}
		go func() {
			_, err := b.Refuse(context.Background(), owner, e.Item, toolstore.Refusal{Reason: "no"})
			decided <- err
		}()
		for run := (toolstore.Run{}); run.State != proto.RunRefused; { // the decision is recorded, and not told yet
			var err error
			if run, err = b.GetRun(owner, e.Item); err != nil {
				t.Error(err)
				return
			}
		}
		select {
		case <-decided:
			t.Error("the decision was told before the log has that the run waits")
			decided <- nil
		case <-time.After(50 * time.Millisecond):
		}
	}})
	b.careful(t)
	b.parked(t, `{"what": "refused at once"}`)
	if err := <-decided; err != nil {
		t.Error(err)
	}
}
