package file

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/tenure-go/tenure/fence"
)

// childWord makes this test program a process of a test: childWord and its orders as JSON.
const childWord = "child-of-a-test"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == childWord {
		os.Exit(child(os.Args[2]))
	}
	// A race-built program otherwise lingers for a second when it exits.
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0 halt_on_error=1"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

// orders are what a child does.
type orders struct {
	Path  string      `json:"path"`
	Op    string      `json:"op"`
	Token fence.Token `json:"token"`
	Data  string      `json:"data"`
	Times int         `json:"times"` // how often an append is done
	Twin  string      `json:"twin"`

	// DieAt kills the child at that call of disk, from 1; with Half a write is half done then. 0: never.
	DieAt int  `json:"die_at"`
	Half  bool `json:"half"`
	// StopAt stops the child there instead.
	StopAt int `json:"stop_at"`
	// Limit is the largest size of any file that the child may write, in bytes.
	Limit uint64 `json:"limit"`
	// Nobody has the child run without root's rights.
	Nobody bool `json:"nobody"`
}

// command is a child, ready to start.
func command(o orders) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	return exec.Command(self, childWord, string(text)), nil
}

// Exit codes of a child.
const (
	exitRefused = 3
	exitFull    = 4
	exitDenied  = 5
	exitOther   = 6
)

func child(text string) int {
	var o orders
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return exitOther
	}
	err := o.run()
	switch {
	case err == nil:
		return 0
	case errors.Is(err, fence.ErrRefused):
		return exitRefused
	}
	fmt.Fprintln(os.Stderr, err)
	switch {
	case errors.Is(err, ErrFull):
		return exitFull
	case errors.Is(err, ErrDenied):
		return exitDenied
	}
	return exitOther
}

func (o orders) run() error {
	ctx := context.Background()
	p := realParts()
	dieIn(&p, o)
	if change, ok := twins()[o.Twin]; ok {
		change(&p)
	} else if o.Twin != "" {
		return fmt.Errorf("no twin %q", o.Twin)
	}
	limit(o.Limit)
	if o.Nobody {
		if err := becomeNobody(); err != nil {
			return err
		}
	}
	f, err := open(ctx, o.Path, Options{}, p)
	if err != nil {
		return err
	}
	return o.do(ctx, f)
}

// do carries out one operation.
func (o orders) do(ctx context.Context, f *File) error {
	c := claim(o.Token)
	switch o.Op {
	case "open":
		return nil
	case "enter":
		_, err := f.Enter(ctx, c)
		return err
	case "replace":
		return f.Replace(ctx, c, []byte(o.Data))
	case "update":
		return f.Update(ctx, c, func(old []byte) ([]byte, error) { return append(old, o.Data...), nil })
	case "append":
		for i := range max(o.Times, 1) {
			data := o.Data
			if o.Times > 0 {
				data = fmt.Sprintf("%s %d %d\n", o.Data, o.Token, i)
			}
			if err := f.Append(ctx, c, []byte(data)); err != nil {
				return err
			}
		}
		return nil
	case "append-acknowledged": // for ever, and says so after each
		for i := 0; ; i++ {
			if err := f.Append(ctx, c, fmt.Appendf(nil, "%s %d\n", o.Data, i)); err != nil {
				return err
			}
			fmt.Println(i)
		}
	case "pause-append": // the last look is over, and then time passes
		stopSelf()
		return f.Append(ctx, c, []byte(o.Data))
	case "update-many":
		for i := range o.Times {
			line := fmt.Sprintf("%s %d %d\n", o.Data, o.Token, i)
			if err := f.Update(ctx, c, func(old []byte) ([]byte, error) { return append(old, line...), nil }); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("no operation %q", o.Op)
}

// twins are broken on purpose; a test is named beside each that must catch it.
func twins() map[string]func(*parts) {
	return map[string]func(*parts){
		// TestRules: a lower token is refused.
		"lower accepted": func(p *parts) {
			p.admit = func(m fence.Mark, c fence.Claim) (fence.Mark, error) {
				m.Token = min(m.Token, c.Token)
				return fence.Admit(m, c)
			}
		},
		// TestRules: an equal token is accepted.
		"equal refused": func(p *parts) {
			p.admit = func(m fence.Mark, c fence.Claim) (fence.Mark, error) {
				if c.Token == m.Token {
					return m, &fence.RefusedError{Resource: m.Resource, Claim: c, Why: fence.Superseded, Newer: m.Token}
				}
				return fence.Admit(m, c)
			}
		},
		// TestRules: entering raises the mark.
		"enter raises nothing": func(p *parts) {
			p.enter = func(m fence.Mark, c fence.Claim) (fence.Mark, error) {
				after, err := fence.Enter(m, c)
				if err == nil && m.Token > 0 {
					return m, nil
				}
				return after, err
			}
		},
		// TestProcessesRace.
		"no lock": func(p *parts) {
			var turns sync.Map // Open's probe alone asks for the main lock without being next
			p.lock = func(side *os.File, which int) (bool, error) {
				if which == lockNext {
					turns.Store(side, true)
					return true, nil
				}
				_, was := turns.LoadAndDelete(side)
				return was, nil
			}
			p.unlock = func(*os.File, int) error { return nil }
		},
		// TestKilledAnywhere and TestPowerLoss: the mark is not behind the content.
		"mark after content": func(p *parts) { lateMark(p) },
		// TestPowerLoss alone: what a killed process leaves is in the kernel's hands.
		"folder not durable":  func(p *parts) { p.syncFolder = func(string) error { return nil } },
		"content not durable": func(p *parts) { p.sync = onlySide(p.sync, true) },
		"mark not durable":    func(p *parts) { p.sync = onlySide(p.sync, false) },
		// TestKilledAnywhere: an append is whole or not there.
		"torn tails stay": func(p *parts) { p.truncate = func(*os.File, int64) error { return nil } },
	}
}

func isSide(file *os.File) bool { return strings.HasSuffix(file.Name(), sideSuffix) }

// onlySide makes durable the side file alone, or all else.
func onlySide(sync func(*os.File) error, side bool) func(*os.File) error {
	return func(file *os.File) error {
		if isSide(file) != side {
			return nil
		}
		return sync(file)
	}
}

// lateMark writes each state with the marks of before, and a further one with those of the claim when the content has been changed.
func lateMark(p *parts) {
	writeAt, sync, syncFolder := p.writeAt, p.sync, p.syncFolder
	var path string
	var late *state
	marks := []mark{}
	p.writeAt = func(file *os.File, data []byte, at int64) error {
		st, isState := decode(data)
		if !isState {
			return writeAt(file, data, at)
		}
		if now, _, err := readState(file); late == nil && err == nil {
			marks = now.Marks
		}
		early := st
		path, late, early.Marks = file.Name(), &st, marks
		slot, err := early.encode()
		if err != nil {
			return err
		}
		return writeAt(file, slot, at)
	}
	flush := func() error {
		if late == nil {
			return nil
		}
		st := state{Side: late.Side, Seq: late.Seq + 1, Marks: late.Marks, Before: late.After, After: late.After}
		late = nil
		slot, err := st.encode()
		if err != nil {
			return err
		}
		side, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			return err
		}
		return errors.Join(writeAt(side, slot, 0), sync(side), writeAt(side, slot, slotSize), sync(side), side.Close())
	}
	p.sync = func(file *os.File) error { // the content's, in an append
		err := sync(file)
		if isSide(file) || err != nil || strings.HasSuffix(file.Name(), newSuffix) {
			return err
		}
		return flush()
	}
	p.syncFolder = func(path string) error { return errors.Join(syncFolder(path), flush()) }
}

// halfOf is as much of a write as is done when it is done by half: of a copy of the state, the checksum and a part of what it is about.
func halfOf(data []byte) []byte { return data[:min(len(data)/2, 150)] }

func id(last byte) fence.ID {
	id := fence.ID{0: 1, 6: 0x70, 8: 0x80}
	id[15] = last
	return id
}

func claim(token fence.Token) fence.Claim {
	return fence.Claim{Authority: id(1), Name: "orders/17", Acquisition: id(byte(token)), Token: token}
}

// fresh is a path in a folder of its own.
func fresh(t testing.TB) string {
	t.Helper()
	return filepath.Join(t.TempDir(), "orders.txt")
}

func mustOpen(t testing.TB, path string, o Options) *File {
	t.Helper()
	f, err := Open(t.Context(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// must fails the test unless err is nil.
func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func contentOf(t testing.TB, path string) string {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return string(raw)
}
