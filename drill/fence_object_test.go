package drill

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenure-go/tenure/drill/model"
	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/object"
	"github.com/tenure-go/tenure/fence/object/s3"
	"github.com/tenure-go/tenure/internal/testdb/s3gateway"
)

// objectApartTwin looks at the mark of the object, and writes without a condition.
func objectApartTwin(w *worker) {
	w.late = func(ctx context.Context, c command) (*model.Answer, error) {
		write := w.writing(c)
		write.late = true
		got, err := object.Get(ctx, w.res.objects, nameOf(w.Run, w.Round))
		if err != nil {
			return nil, err
		}
		m := fence.Mark{Authority: got.Claim.Authority, Name: got.Claim.Name, Token: got.Claim.Token}
		if _, err := fence.Admit(m, write.claim); err != nil {
			return nil, err
		}
		answer, err := w.res.write(ctx, write, nil)
		return &answer, err
	}
}

// noObjects looks for what a drill left in the bucket.
func noObjects(url string) error {
	o, err := openObjects(url)
	if err != nil {
		return err
	}
	defer o.bucket.Close()
	keys, err := o.keys(context.Background(), "")
	if len(keys) > 0 {
		err = errors.Join(err, fmt.Errorf("objects left: %q", keys))
	}
	return err
}

// TestFenceObject: damage with plain PUTs, none with conditional ones, on both kinds of store, and nothing is left.
func TestFenceObject(t *testing.T) {
	t.Parallel()
	g := s3gateway.Start(t)
	var cases []func(t *testing.T) error
	for _, unfenced := range []bool{false, true} {
		for _, o := range []Options{options(t, "fence-object", "sound", 3), onPostgres(t, "fence-object", "sound", 2)} {
			o.S3, o.Unfenced = g.Bucket(t), unfenced
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
				var table strings.Builder
				if err := errors.Join(r.WriteTable(&table), r.WriteJSON(&table)); err != nil {
					return err
				}
				keys, place, _ := strings.Cut(strings.TrimPrefix(o.S3, "http://"), "@")
				if _, secret, _ := strings.Cut(keys, ":"); strings.Contains(table.String(), secret) || !strings.Contains(table.String(), "objects in http://"+place) {
					return fmt.Errorf("the report does not name the bucket, or shows its key: %s", &table)
				}
				return errors.Join(noTables(o.Path), noObjects(o.S3))
			})
		}
	}
	together(t, cases)
}

// TestFenceObjectTwins: an object that is not checked, or is checked apart from the write, is found out; so is a late write that is not sent.
func TestFenceObjectTwins(t *testing.T) {
	t.Parallel()
	g := s3gateway.Start(t)
	var cases []func(t *testing.T) error
	for twin, shows := range map[string]func(Report) bool{
		"blind":        func(r Report) bool { return r.AcceptedStale == 2 && r.LostUpdates == 2 },
		"object-apart": func(r Report) bool { return r.AcceptedStale == 2 && r.LostUpdates == 2 },
		"silent":       func(r Report) bool { return slices.Equal(r.InvalidRounds, []int{1, 2}) },
	} {
		o := options(t, "fence-object", twin, 2)
		o.S3 = g.Bucket(t)
		cases = append(cases, func(*testing.T) error {
			r, err := Run(context.Background(), o)
			if err != nil || r.OK || !shows(r) {
				return fmt.Errorf("%s: %+v, %w", twin, r, err)
			}
			return errors.Join(noTables(o.Path), noObjects(o.S3))
		})
	}
	together(t, cases)
}

// TestTheJudgeReadsTheObjects: what the log says is held against what the bucket holds.
func TestTheJudgeReadsTheObjects(t *testing.T) {
	t.Parallel()
	o := options(t, "fence-object", "sound", 2)
	o.S3 = s3gateway.Start(t).Bucket(t)
	sc, _ := find(o.Scenario)
	sc.play = func(ctx context.Context, r *round) error {
		if err := playPause(ctx, r); err != nil {
			return err
		}
		// Somebody changes the object behind the back of everybody.
		r.c.res.objects.plain = true
		return r.c.res.objects.put(ctx, nameOf(r.c.run, r.n), writing{}, []byte(`["a-1","a-late"]`))
	}
	r, err := conduct(t.Context(), o, sc)
	if err != nil || r.OK || r.LostUpdates != 2 || !says("is read", "and is in the content")(r) {
		t.Errorf("%+v, %v", r, err)
	}
}

// TestObjectsOfADrillThatWasKilled are removed by a later one, once they are old.
func TestObjectsOfADrillThatWasKilled(t *testing.T) {
	t.Parallel()
	o := options(t, "fence-object", "sound", 1)
	o.S3 = s3gateway.Start(t).Bucket(t)
	objs, err := openObjects(o.S3)
	if err != nil {
		t.Fatal(err)
	}
	defer objs.bucket.Close()
	objs.plain = true
	old, young := nameOf(newRun(time.Now().Add(-25*time.Hour)), 1), nameOf(newRun(time.Now().Add(-time.Hour)), 1)
	for _, key := range []string{old, young, objectPrefix + "mine", "other/1"} {
		if err := objs.put(t.Context(), key, writing{}, []byte(`[]`)); err != nil {
			t.Fatal(err)
		}
	}
	if r, err := Run(t.Context(), o); err != nil || !r.OK {
		t.Errorf("%+v, %v", r, err)
	}
	want := []string{"other/1", young, objectPrefix + "mine"}
	keys, err := objs.keys(t.Context(), "")
	slices.Sort(keys)
	slices.Sort(want)
	if err != nil || !slices.Equal(keys, want) {
		t.Errorf("%q are left, want %q: %v", keys, want, err)
	}
}

// TestBucketsThatDoNotFit: nothing is done with them, and no error shows a key.
func TestBucketsThatDoNotFit(t *testing.T) {
	base := options(t, "fence-object", "sound", 1)
	yes := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})) // it takes every PUT
	defer yes.Close()
	for name, c := range map[string]struct {
		change func(*Options)
		want   error
	}{
		"none":             {func(*Options) {}, ErrOption},
		"no bucket in it":  {func(o *Options) { o.S3 = "http://key:hidden@127.0.0.1:7070" }, ErrOption},
		"in another drill": {func(o *Options) { o.Scenario, o.S3 = "pause", "http://key:hidden@127.0.0.1:7070/bucket" }, ErrOption},
		"in memory":        {func(o *Options) { o.Path, o.S3 = "", "http://key:hidden@127.0.0.1:7070/bucket" }, ErrOption},
		"a mark asked for": {func(o *Options) { o.HighWater, o.S3 = true, "http://key:hidden@127.0.0.1:7070/bucket" }, ErrOption},
		"takes every PUT":  {func(o *Options) { o.S3 = strings.Replace(yes.URL, "//", "//key:hidden@", 1) + "/bucket" }, s3.ErrUnsupported},
		"not there":        {func(o *Options) { o.S3 = "http://key:hidden@127.0.0.1:1/bucket" }, object.ErrRejected},
	} {
		o := base
		c.change(&o)
		if r, err := Run(t.Context(), o); !errors.Is(err, c.want) || strings.Contains(err.Error(), "hidden") || r.OK {
			t.Errorf("%s: %+v, %v", name, r, err)
		}
	}
}
