package postgres

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/tenure-go/tenure/hold"
)

// lostHold places, confirms and extends while the role's synchronous_commit is off, kills the server, and says what of it was lost.
func lostHold(t *testing.T, twin []edit) string {
	t.Helper()
	ctx := t.Context()
	settings := lazyLog()
	settings["synchronous_commit"] = "off"
	r := newOwnRig(t, settings, Options{})
	for _, e := range twin {
		if err := r.edit(ctx, e); err != nil {
			t.Fatal(err)
		}
	}
	f := counterIn(r)
	f.stock("a", "b", "c", "d")
	if _, err := r.own.Exec(ctx, `CHECKPOINT`); err != nil {
		t.Fatal(err)
	}
	want := map[hold.State]hold.Hold{hold.Held: f.place("ann", time.Minute, "a"), hold.Confirmed: f.place("bob", time.Minute, "b"), hold.Released: f.place("cid", time.Minute, "c")}
	if _, err := f.holds.Extend(ctx, want[hold.Held].ID, "ann", time.Hour); err != nil {
		t.Fatal(err)
	}
	if _, err := f.holds.Confirm(ctx, paid(want[hold.Confirmed])); err != nil {
		t.Fatal(err)
	}
	if _, err := f.holds.Release(ctx, want[hold.Released].ID, "cid"); err != nil {
		t.Fatal(err)
	}
	r.server.Crash(t)
	r.restart()
	for state, h := range want {
		var now hold.Hold
		err := r.patientlyHold(ctx, func() (err error) {
			if now, err = f.holds.Get(ctx, h.ID); errors.Is(err, hold.ErrNotFound) {
				now, err = hold.Hold{}, nil
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if now.State != state || state == hold.Held && now.Left < 30*time.Minute {
			return fmt.Sprintf("a hold was told to be %v, and after the crash is %+v", state, now)
		}
	}
	return ""
}

// TestHoldsAreDurable: what was told outlives the server, whatever the role's synchronous_commit is.
func TestHoldsAreDurable(t *testing.T) {
	t.Parallel()
	if lost := lostHold(t, nil); lost != "" {
		t.Error(lost)
	}
}

// TestHoldsWithoutDurability: functions that leave the setting as it is lose what they told.
func TestHoldsWithoutDurability(t *testing.T) {
	t.Parallel()
	for range tries {
		if lost := lostHold(t, []edit{{"durable", "IF current_setting('synchronous_commit') IN ('off', 'local') THEN", "IF false THEN"}}); lost != "" {
			t.Log(lost)
			return
		}
	}
	t.Error("nothing was lost: the test above shows nothing")
}
