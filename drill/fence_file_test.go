package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/drill/model"
)

// fileApartTwin enters under its claim, is stopped, and writes by other means.
func fileApartTwin(w *worker) {
	stop := w.stop
	w.stop = func(ctx context.Context) error {
		_, err := w.res.files.read(ctx, w.Round, &w.claim)
		return errors.Join(err, stop(ctx))
	}
	w.late = func(ctx context.Context, c command) (*model.Answer, error) {
		write := w.writing(c)
		write.late = true
		answer, err := w.res.write(ctx, write, nil)
		return &answer, err
	}
}

// noFiles looks for what a drill left in the folder.
func noFiles(folder string) error {
	entries, err := os.ReadDir(folder)
	if len(entries) > 0 {
		err = errors.Join(err, fmt.Errorf("left in the folder: %v", entries))
	}
	return err
}

// TestFenceFile: damage with plain files, none with guarded ones, on both kinds of store, and nothing is left.
func TestFenceFile(t *testing.T) {
	t.Parallel()
	var cases []func(t *testing.T) error
	for _, unfenced := range []bool{false, true} {
		for _, o := range []Options{options(t, "fence-file", "sound", 3), onPostgres(t, "fence-file", "sound", 2)} {
			o.Folder, o.Unfenced = t.TempDir(), unfenced
			cases = append(cases, func(*testing.T) error {
				r, err := Run(context.Background(), o)
				accepted, refused := 0, o.Rounds
				if unfenced {
					accepted, refused = o.Rounds, 0
				}
				if err != nil || !r.OK || r.LateWritesSent != o.Rounds || r.AcceptedStale != accepted || r.RefusedStale != refused ||
					r.LostUpdates < accepted || !unfenced && r.LostUpdates > 0 || r.SuccessorWrites < o.Rounds || (r.Check == string(guardMark)) == unfenced {
					return fmt.Errorf("unfenced %v on %s: %+v, %w", unfenced, o.Store, r, err)
				}
				if !strings.Contains(r.Store, "files in "+o.Folder) {
					return fmt.Errorf("the report does not name the folder: %q", r.Store)
				}
				return errors.Join(noTables(o.Path), noFiles(o.Folder))
			})
		}
	}
	together(t, cases)
}

// TestFenceFileTwins: a file that is not checked, or is checked apart from the write, is found out; so is a late write that is not sent.
func TestFenceFileTwins(t *testing.T) {
	t.Parallel()
	var cases []func(t *testing.T) error
	for twin, shows := range map[string]func(Report) bool{
		"blind":      func(r Report) bool { return r.AcceptedStale == 2 && r.LostUpdates == 2 },
		"file-apart": func(r Report) bool { return r.AcceptedStale == 2 && r.LostUpdates == 2 },
		"silent":     func(r Report) bool { return slices.Equal(r.InvalidRounds, []int{1, 2}) },
	} {
		o := options(t, "fence-file", twin, 2)
		o.Folder = t.TempDir()
		cases = append(cases, func(*testing.T) error {
			r, err := Run(context.Background(), o)
			if err != nil || r.OK || !shows(r) {
				return fmt.Errorf("%s: %+v, %w", twin, r, err)
			}
			return errors.Join(noTables(o.Path), noFiles(o.Folder))
		})
	}
	together(t, cases)
}

// TestTheJudgeReadsTheFiles: what the log says is held against what the files hold.
func TestTheJudgeReadsTheFiles(t *testing.T) {
	t.Parallel()
	o := options(t, "fence-file", "sound", 2)
	o.Folder = t.TempDir()
	sc, _ := find(o.Scenario)
	sc.play = func(ctx context.Context, r *round) error {
		if err := playPause(ctx, r); err != nil {
			return err
		}
		// Somebody writes the file behind the back of everybody.
		text, err := json.Marshal([]string{"a-1", "a-late"})
		return errors.Join(err, os.WriteFile(r.c.res.files.path(r.n), text, 0o600))
	}
	r, err := conduct(t.Context(), o, sc)
	if err != nil || r.OK || r.LostUpdates != 2 || !says("is read", "and is in the content")(r) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestFilesOfADrillThatWasKilled are removed by a later one, once they are old.
func TestFilesOfADrillThatWasKilled(t *testing.T) {
	t.Parallel()
	o := options(t, "fence-file", "sound", 1)
	o.Folder = t.TempDir()
	old, young := folderPrefix+newRun(time.Now().Add(-25*time.Hour)), folderPrefix+newRun(time.Now().Add(-time.Hour))
	want := []string{young, folderPrefix + "mine", "other"}
	for _, name := range append([]string{old}, want...) {
		if err := errors.Join(os.Mkdir(filepath.Join(o.Folder, name), 0o700), os.WriteFile(filepath.Join(o.Folder, name, "1.json"), nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := Run(t.Context(), o); err != nil || !r.OK {
		t.Errorf("%+v, %v", r, err)
	}
	entries, err := os.ReadDir(o.Folder)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	slices.Sort(want)
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("%q are left, want %q: %v", names, want, err)
	}
}

// TestFoldersThatDoNotFit: nothing is done with them.
func TestFoldersThatDoNotFit(t *testing.T) {
	t.Parallel()
	base := options(t, "fence-file", "sound", 1)
	for name, c := range map[string]struct {
		change func(*Options)
		want   error
	}{
		"not absolute":     {func(o *Options) { o.Folder = "here" }, ErrOption},
		"in another drill": {func(o *Options) { o.Scenario, o.Folder = "pause", t.TempDir() }, ErrOption},
		"in memory":        {func(o *Options) { o.Path, o.Folder = "", t.TempDir() }, ErrOption},
		"a mark asked for": {func(o *Options) { o.HighWater, o.Folder = true, t.TempDir() }, ErrOption},
		"not there":        {func(o *Options) { o.Folder = filepath.Join(t.TempDir(), "absent") }, os.ErrNotExist},
		"no folder":        {func(o *Options) { o.Folder = base.Self[0] }, nil},
	} {
		o := base
		c.change(&o)
		r, err := Run(t.Context(), o)
		if err == nil || c.want != nil && !errors.Is(err, c.want) || r.OK {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
	if err := noTables(base.Path); err != nil {
		t.Error(err)
	}
}
