package fencehttp

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"

	"github.com/tenure-go/tenure/fence"
)

// broken doors. Each must be caught by the case that is named with it.

// lenient lets a lower token in.
func lenient(next http.Handler, o Options) (http.Handler, error) {
	o.Check = CheckFunc(func(context.Context, string, fence.Claim) error { return nil })
	return Protect(next, o)
}

// turnless forgets about turns.
func turnless(next http.Handler, o Options) (http.Handler, error) {
	o.Turns = nil
	return Protect(next, o)
}

// reentrant lets a request of the owner that is at work in beside it.
func reentrant(next http.Handler, o Options) (http.Handler, error) {
	var mu sync.Mutex
	var atWork []string
	note := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		atWork = append(atWork, r.Header.Get(ClaimHeader))
		mu.Unlock()
		next.ServeHTTP(w, r)
	})
	sound, err := Protect(note, o)
	if err != nil {
		return nil, err
	}
	o.Turns = nil
	beside, err := Protect(note, o)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		same := slices.Contains(atWork, r.Header.Get(ClaimHeader))
		mu.Unlock()
		if same {
			beside.ServeHTTP(w, r)
			return
		}
		sound.ServeHTTP(w, r)
	}), err
}

// hasty passes a request on and checks it then.
func hasty(next http.Handler, o Options) (http.Handler, error) {
	sound, err := Protect(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), o)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		next.ServeHTTP(answer, r)
		sound.ServeHTTP(w, r)
	}), err
}

// early checks before the turn, and not in it.
func early(next http.Handler, o Options) (http.Handler, error) {
	check := o.Check
	o.Check = CheckFunc(func(context.Context, string, fence.Claim) error { return nil })
	in, err := Protect(next, o)
	if err != nil {
		return nil, err
	}
	o.Check, o.Turns = check, nil
	return Protect(in, o)
}

// failOpen lets in what could not be checked.
func failOpen(next http.Handler, o Options) (http.Handler, error) {
	check := o.Check
	o.Check = CheckFunc(func(ctx context.Context, resource string, claim fence.Claim) error {
		err := check.Within(ctx, resource, claim, func(context.Context) error { return nil })
		if CodeOf(err) == CodeUnavailable {
			return nil
		}
		return err
	})
	return Protect(next, o)
}

// TestBrokenDoors: a door that is broken on purpose fails the case that is about what it lacks.
func TestBrokenDoors(t *testing.T) {
	for name, twin := range map[string]struct {
		build  maker
		caught string
	}{
		"lets a lower token in":                   {lenient, "lower-is-refused"},
		"does not give turns":                     {turnless, "newer-waits"},
		"lets equal tokens in together":           {reentrant, "equals-take-turns"},
		"forwards before the check":               {hasty, "lower-is-refused"},
		"checks before the turn only":             {early, "checked-in-turn"},
		"lets in what it could not check":         {failOpen, "unchecked-not-served"},
		"without turns, an older one that waited": {turnless, "checked-in-turn"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := doorCases()[twin.caught](t, twin.build)
			if err == nil {
				t.Fatalf("%s passes a door that %s", twin.caught, name)
			}
			t.Log(err)
		})
	}
}
