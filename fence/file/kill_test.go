//go:build unix

package file

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/tenure-go/tenure/fence"
)

// maxCalls bounds how many calls of the disk one child makes.
const maxCalls = 60

// killing is an operation that is killed at each of its calls, on a file that holds "old" under token 5.
type killing struct {
	op   string
	data string
	want string // when it was done
}

func killings() []killing {
	return []killing{
		{"open", "", "old"}, {"enter", "", "old"}, {"replace", "new", "new"}, {"update", "+new", "old+new"},
		{"append", strings.Repeat("+new", 50), "old" + strings.Repeat("+new", 50)},
	}
}

// killed plays a killing up to one call, and says what is wrong with what is left. It reports whether the child had finished before.
func killed(folder string, k killing, o orders, fresh bool) (finished bool, err error) {
	o.Path, o.Op, o.Token, o.Data = filepath.Join(folder, "orders.txt"), k.op, 7, k.data
	before, want := "old", k.want
	if fresh {
		before, want = "", strings.TrimPrefix(k.want, "old")
	} else if err := prepareOld(o.Path); err != nil {
		return false, err
	}
	if finished, err = runChild(o); err != nil {
		return false, err
	}
	return finished, checkAfter(o, before, want, finished)
}

func prepareOld(path string) error {
	f, err := Open(ctx(), path, Options{})
	if err != nil {
		return err
	}
	return f.Replace(ctx(), claim(5), []byte("old"))
}

// checkAfter opens what was left and makes sure that it is one or the other, and that the mark is not behind it.
func checkAfter(o orders, before, want string, finished bool) error {
	p := realParts()
	if o.Twin == "torn tails stay" { // it is whoever comes next that is to cut them
		twins()[o.Twin](&p)
	}
	f, err := open(ctx(), o.Path, Options{}, p)
	if err != nil {
		return fmt.Errorf("it cannot be opened: %w", err)
	}
	got, err := f.Read(ctx())
	if err != nil {
		return fmt.Errorf("it cannot be read: %w", err)
	}
	switch {
	case string(got) != before && string(got) != want:
		return fmt.Errorf("neither old nor new: %d bytes, %.20q", len(got), got)
	case finished && string(got) != want:
		return fmt.Errorf("what was acknowledged is lost: %.20q", got)
	case o.Op != "open" && finished && mustRefuse(f, 6), before != want && string(got) == want && mustRefuse(f, 6):
		return errors.New("the mark is behind the content: a former holder is accepted")
	case before != "" && mustRefuse(f, 4):
		return errors.New("the mark fell")
	}
	if err := f.Append(ctx(), claim(7), []byte("|")); err != nil {
		return fmt.Errorf("it cannot be appended to: %w", err)
	}
	if again, err := f.Read(ctx()); err != nil || string(again) != string(got)+"|" {
		return fmt.Errorf("it does not go on: %.40q, %w", again, err)
	}
	if _, err := os.Lstat(o.Path + newSuffix); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("something of the crashed writer is left: %w", err)
	}
	return nil
}

// mustRefuse reports whether a write under the token was accepted although it must not be.
func mustRefuse(f *File, token fence.Token) bool {
	return !errors.Is(f.Append(ctx(), claim(token), []byte("late")), fence.ErrRefused)
}

// everyCall kills the operation at each call, whole and half, until one finishes.
func everyCall(t *testing.T, k killing, twin string, fresh bool) (deaths int, err error) {
	t.Helper()
	for call := 1; call <= maxCalls; call++ {
		for _, half := range []bool{false, true} {
			finished, err := killed(t.TempDir(), k, orders{DieAt: call, Half: half, Twin: twin}, fresh)
			if err != nil {
				return deaths, fmt.Errorf("%s, killed at call %d, half %v, of a new file %v: %w", k.op, call, half, fresh, err)
			}
			if finished {
				return deaths, nil
			}
			deaths++
		}
	}
	return deaths, fmt.Errorf("%s: it makes more than %d calls", k.op, maxCalls)
}

// TestKilledAnywhere: a process killed at any call leaves the old content or the new one, and a mark that is not behind.
func TestKilledAnywhere(t *testing.T) {
	t.Parallel()
	for _, k := range killings() {
		t.Run(k.op, func(t *testing.T) {
			t.Parallel()
			for _, fresh := range []bool{false, true} {
				deaths, err := everyCall(t, k, "", fresh)
				if err != nil {
					t.Error(err)
				}
				if deaths < 4 {
					t.Errorf("it died %d times only", deaths)
				}
			}
		})
	}
}

// TestKilledTwins: what is broken on purpose does not survive the same.
func TestKilledTwins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ op, twin, says string }{
		{"replace", "mark after content", "behind the content"}, {"append", "mark after content", "behind the content"}, {"append", "torn tails stay", "cannot be read"},
	} {
		for _, k := range killings() {
			if k.op != c.op {
				continue
			}
			if _, err := everyCall(t, k, c.twin, false); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%s with the twin %q is not caught: %v", c.op, c.twin, err)
			}
		}
	}
}

// TestKilledWhileSettling: what a crashed append left is settled by a process that is killed at it, and by the next.
func TestKilledWhileSettling(t *testing.T) {
	t.Parallel()
	settled := 0
	for call := 1; call <= maxCalls; call++ {
		for again := 1; again <= maxCalls; again++ {
			o := orders{Path: fresh(t), Op: "append", Token: 7, Data: "a longer tail than what was there", DieAt: call, Half: true}
			must(t, prepareOld(o.Path))
			first, err := runChild(o)
			must(t, err)
			if first {
				if settled < 10 {
					t.Errorf("%d deaths while settling only", settled)
				}
				return
			}
			second, err := runChild(orders{Path: o.Path, Op: "open", DieAt: again})
			must(t, err)
			if err := checkAfter(o, "old", "old"+o.Data, false); err != nil {
				t.Fatalf("killed at call %d, and then at call %d of settling: %v", call, again, err)
			}
			if second {
				break
			}
			settled++
		}
	}
}

// runChild reports whether a child finished, rather than being killed.
func runChild(o orders) (finished bool, err error) {
	cmd, err := command(o)
	if err != nil {
		return false, err
	}
	out, err := cmd.CombinedOutput()
	exit := new(exec.ExitError)
	switch {
	case err == nil:
		return true, nil
	case errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signaled():
		return false, nil
	}
	return false, fmt.Errorf("the child: %w: %s", err, out)
}
