package twin

import (
	"path/filepath"
	"testing"
)

// TestTwinIsALeaseStore: a twin that does not keep the two rules that it claims to keep would be a straw man.
func TestTwinIsALeaseStore(t *testing.T) {
	twin, err := Open(t.Context(), filepath.Join(t.TempDir(), "twin.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := twin.Close(); err != nil {
			t.Error(err)
		}
	})
	session := []byte("session")
	last := int64(0)
	for _, id := range []string{"a", "b", "c"} {
		token, err := twin.Acquire("name", []byte(id), session)
		if err != nil {
			t.Fatalf("acquire %s: %v", id, err)
		}
		if token <= last {
			t.Errorf("token %d after %d: tokens must rise", token, last)
		}
		last = token
		if _, err := twin.Acquire("name", []byte("other"), session); err == nil {
			t.Error("a held name was granted")
		}
		if err := twin.Release("name", []byte("other")); err == nil {
			t.Error("an acquisition that does not hold the name released it")
		}
		if err := twin.Release("name", []byte(id)); err != nil {
			t.Fatalf("release %s: %v", id, err)
		}
	}
}

func TestTwinSettings(t *testing.T) {
	twin, err := Open(t.Context(), filepath.Join(t.TempDir(), "twin.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { twin.Close() })
	for pragma, want := range map[string]string{"journal_mode": "wal", "synchronous": "2"} {
		var got string
		if err := twin.conn.QueryRowContext(t.Context(), `PRAGMA `+pragma).Scan(&got); err != nil {
			t.Fatal(err)
		}
		if got != want {
			t.Errorf("%s is %s, want %s: the comparison would not be at the same durability", pragma, got, want)
		}
	}
}
