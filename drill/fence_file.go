package drill

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/file"
)

// fenceFile plays pause with guarded files for a resource.
func fenceFile(ctx context.Context, o Options, sc Scenario) (Report, error) {
	o.HighWater = !o.Unfenced
	r, err := conduct(ctx, o, sc)
	if !o.Unfenced {
		r.Check = string(guardMark)
	}
	return r, err
}

const (
	folderPrefix = "tenure-drill-" // of the folder that a run makes; the run follows
	fileSuffix   = ".json"         // of a round's file; its number stands before
)

// files are the values of a run's rounds, each in a file of its own. Log and answers are in the tables beside the store: a file can have no log
// that changes with it, so what the file holds in the end is the judge's to compare. Safe for concurrent use.
type files struct {
	parent string // of the run's folder
	folder string

	mu     sync.Mutex
	opened map[int]*file.File // by round: a worker that was stopped goes on with the one that it had
}

func openFiles(parent, run string) *files {
	return &files{parent: parent, folder: filepath.Join(parent, folderPrefix+run), opened: map[int]*file.File{}}
}

func (f *files) path(round int) string {
	return filepath.Join(f.folder, strconv.Itoa(round)+fileSuffix)
}

// create makes the run's folder, and makes sure that files can be guarded there.
func (f *files) create(ctx context.Context) error {
	if err := os.Mkdir(f.folder, 0o700); err != nil {
		return err
	}
	_, err := file.Open(ctx, filepath.Join(f.folder, "probe"), file.Options{})
	return err
}

// remove deletes the run's folder, marks and all.
func (f *files) remove() error { return os.RemoveAll(f.folder) }

// sweep deletes the folders of runs that began long ago and were killed before they could.
func (f *files) sweep(now time.Time) error {
	entries, err := os.ReadDir(f.parent)
	if err != nil {
		return err
	}
	form := regexp.MustCompile(`^` + folderPrefix + `([0-9a-f]{8})[0-9a-f]{8}$`)
	swept := 0
	for _, e := range entries {
		match := form.FindStringSubmatch(e.Name())
		if match == nil || !e.IsDir() || swept == maxSwept {
			continue
		}
		began, err := strconv.ParseUint(match[1], 16, 32)
		if err != nil {
			return err
		}
		if now.Sub(time.Unix(int64(began), 0)) <= leftAfter {
			continue
		}
		swept++
		if err := os.RemoveAll(filepath.Join(f.parent, e.Name())); err != nil && !errors.Is(err, fs.ErrPermission) { // another user's
			return err
		}
	}
	return nil
}

// guarded is the round's file as this process uses it.
func (f *files) guarded(ctx context.Context, round int) (*file.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if g := f.opened[round]; g != nil {
		return g, nil
	}
	g, err := file.Open(ctx, f.path(round), file.Options{})
	if err == nil {
		f.opened[round] = g
	}
	return g, err
}

// read returns what a round's file holds. A claim enters first, if there is one; else the file is read as any program reads it.
func (f *files) read(ctx context.Context, round int, claim *fence.Claim) ([]string, error) {
	var text []byte
	var err error
	if claim == nil {
		text, err = os.ReadFile(f.path(round))
	} else {
		var g *file.File
		if g, err = f.guarded(ctx, round); err == nil {
			text, err = g.Enter(ctx, *claim)
		}
	}
	if errors.Is(err, fs.ErrNotExist) || err == nil && text == nil {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var content []string
	err = json.Unmarshal(text, &content)
	return content, err
}

// replace writes a round's file under a claim.
func (f *files) replace(ctx context.Context, w writing, content []byte) error {
	g, err := f.guarded(ctx, w.round)
	if err != nil {
		return err
	}
	return g.Replace(ctx, w.claim, content)
}

// replacePlain writes a round's file as careful programs do that know nothing of claims: beside it, then over it.
func (f *files) replacePlain(w writing, content []byte) error {
	beside := f.path(w.round) + "." + w.writer
	if err := os.WriteFile(beside, content, 0o600); err != nil {
		return err
	}
	return os.Rename(beside, f.path(w.round))
}

// content reads the files of all rounds, with no regard to marks.
func (f *files) content(ctx context.Context) (map[int][]string, error) {
	entries, err := os.ReadDir(f.folder)
	if err != nil {
		return nil, err
	}
	all := map[int][]string{}
	for _, e := range entries {
		round, err := strconv.Atoi(strings.TrimSuffix(e.Name(), fileSuffix))
		if !strings.HasSuffix(e.Name(), fileSuffix) || err != nil {
			continue // a side file
		}
		if all[round], err = f.read(ctx, round, nil); err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
	}
	return all, nil
}

// writeFile writes to the round's file, logs what was accepted, and records the answer. The log is a step of its own: it has the order of the
// writes because a round's processes act one after the other.
func (r *resource) writeFile(ctx context.Context, w writing, fenced bool) (model.Answer, error) {
	content, err := json.Marshal(append(append([]string{}, w.base...), w.element))
	if err != nil {
		return model.Answer{}, err
	}
	if fenced {
		err = r.files.replace(ctx, w, content)
	} else {
		err = r.files.replacePlain(w, content)
	}
	if err == nil {
		err = r.exec(ctx, `INSERT INTO [log] (round, writer, element, token, content) VALUES (?1, ?2, ?3, ?4, ?5)`,
			w.round, w.writer, w.element, int64(w.claim.Token), string(content))
	}
	return r.answered(ctx, w, err)
}

// readFile reads the round's file; where marks are checked it enters first.
func (w *worker) readFile(ctx context.Context) (reply, error) {
	var claim *fence.Claim
	if w.allow != nil && w.claim.Token > 0 {
		claim = &w.claim
	}
	content, err := w.res.files.read(ctx, w.Round, claim)
	w.content = content
	return reply{Content: content}, err
}
