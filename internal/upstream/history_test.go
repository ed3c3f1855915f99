package upstream

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/fence/fencehttp"
)

// version is a value of a register: who wrote it, and which version the writer had read.
type version struct {
	Token fence.Token
	Base  int // in the log; -1: none
}

// register is a service that finishes what it has begun, after a while, and knows nothing of leases.
type register struct {
	mu  sync.Mutex
	log []version
}

func (r *register) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return
	}
	<-time.After(rand.N(3 * time.Millisecond))
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.Method == http.MethodPut {
		var v version
		if json.Unmarshal(body, &v) != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		r.log = append(r.log, v)
	}
	fmt.Fprint(w, len(r.log)-1)
}

// lost is the first write that replaced somebody else's which its writer had not read. Its own, it may: a client that does not wait for an
// answer does not know in which order its requests arrive.
func (r *register) lost() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, v := range r.log {
		for replaced := v.Base + 1; replaced < i; replaced++ {
			if other := r.log[replaced].Token; other != v.Token {
				return fmt.Errorf("write %d under token %d replaced write %d under token %d, having read %d", i, v.Token, replaced, other, v.Base)
			}
		}
	}
	return nil
}

// owner reads and writes under its claim, often without the patience to wait for the answer, until it is refused.
func owner(ctx context.Context, at string, token fence.Token, patience time.Duration) (writes int, err error) {
	ask := func(method string, body []byte) (base int, err error) {
		patient, cancel := context.WithTimeout(ctx, time.Millisecond+rand.N(patience))
		defer cancel()
		r, err := http.NewRequestWithContext(patient, method, at, strings.NewReader(string(body)))
		if err != nil {
			return 0, err
		}
		r.Header.Set(fencehttp.ClaimHeader, claimed("value", token).String())
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err
		}
		defer resp.Body.Close()
		if err := fencehttp.ErrorOf(resp); err != nil {
			return 0, err
		}
		err = json.NewDecoder(resp.Body).Decode(&base)
		return base, err
	}
	for range 6 {
		base, err := ask(http.MethodGet, nil)
		if err == nil {
			var body []byte
			if body, err = json.Marshal(version{Token: token, Base: base}); err == nil {
				_, err = ask(http.MethodPut, body)
			}
		}
		switch {
		case err == nil:
			writes++
		case errors.Is(err, fence.ErrRefused):
			return writes, nil
		case ctx.Err() != nil:
			return writes, ctx.Err()
		}
	}
	return writes, nil
}

// owners play one history: each owner starts while the one before it is at work.
func owners(t *testing.T, build builder, wait time.Duration) (writes int, err error) {
	t.Helper()
	r := new(register)
	service := httptest.NewServer(r)
	defer service.Close()
	to, err := url.Parse(service.URL)
	if err != nil {
		return 0, err
	}
	marks, err := fencehttp.NewMarks(1)
	if err != nil {
		return 0, err
	}
	turns, err := fencehttp.NewSerializer(fencehttp.SerializeOptions{Wait: patience})
	if err != nil {
		return 0, err
	}
	g, err := build(Config{Upstream: to, Check: marks, Turns: turns, Timeout: 2 * time.Millisecond, MaxBody: 1000})
	if err != nil {
		return 0, err
	}
	door := httptest.NewServer(g)
	var all sync.WaitGroup
	var mu sync.Mutex
	for token := range fence.Token(20) {
		all.Go(func() {
			n, failed := owner(t.Context(), door.URL+"/value", token+1, wait)
			mu.Lock()
			defer mu.Unlock()
			writes, err = writes+n, errors.Join(err, failed)
		})
		<-time.After(rand.N(15 * time.Millisecond))
	}
	all.Wait()
	door.Close()
	bound, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err = errors.Join(err, g.Wait(bound), r.lost())
	g.Close()
	if working, waiting := turns.Busy(); working+waiting > 0 && err == nil {
		err = fmt.Errorf("%d turns and %d waiting are left", working, waiting)
	}
	return writes, err
}

// TestNoWriteOfAnotherOwnerIsLost: owners that overlap, clients that go away, a service that takes longer than anybody waits for it: no write
// replaces one of another owner that its writer had not read.
func TestNoWriteOfAnotherOwnerIsLost(t *testing.T) {
	t.Parallel()
	total := 0
	for n := range 100 { // a busy machine acknowledges little, and needs more patience
		writes, err := owners(t, New, time.Duration(20+4*n)*time.Millisecond)
		if err != nil {
			t.Fatal(err)
		}
		if total += writes; n >= 5 && total >= 10 {
			break
		}
	}
	if total < 10 {
		t.Errorf("only %d writes were acknowledged: that shows little", total)
	}
}

// TestHastyTurnsLoseWrites: with turns that end when the client stops waiting the same histories lose writes.
func TestHastyTurnsLoseWrites(t *testing.T) {
	t.Parallel()
	for range 400 { // about one in fifteen does
		if _, err := owners(t, func(c Config) (*Guard, error) { return build(c, false) }, 20*time.Millisecond); err != nil {
			if !strings.Contains(err.Error(), "replaced write") {
				t.Fatal(err)
			}
			t.Log(err)
			return
		}
	}
	t.Error("no write was lost in 400 histories")
}
