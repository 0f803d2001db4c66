package listening

import (
	"testing"
	"time"

	"berth/test/stored"
)

// TestRecordsKeepTheirFormat holds the names in the ledger: the next build continues from there.
func TestRecordsKeepTheirFormat(t *testing.T) {
	stored.CheckNames(t, record{}, "owner generation ports")
	stored.CheckNames(t, told{}, "port address pid program")
	if bucket != "listening" {
		t.Errorf("the bucket is %s", bucket)
	}
}

// TestBudget checks that many changes at once are told at once, and that further ones wait.
func TestBudget(t *testing.T) {
	b := &budget{left: burst, at: time.Now()}
	if b.spend(burst - 1); b.wait() != 0 {
		t.Errorf("after %d changes it waits %s", burst-1, b.wait())
	}
	if b.spend(11); b.wait() < 9*interval || b.wait() > 10*interval {
		t.Errorf("ten too many wait %s", b.wait())
	}
	b.at = b.at.Add(-20 * interval)
	if b.spend(1); b.wait() != 0 || b.left > 11 {
		t.Errorf("20 intervals later it waits %s, with %f left", b.wait(), b.left)
	}
	b.at = b.at.Add(-time.Hour)
	if b.spend(0); b.left != burst {
		t.Errorf("after an hour %f are left", b.left)
	}
}
