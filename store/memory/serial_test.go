package memory

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/lease"
)

// TestStory plays testdata/story.txt on the seed model, line by line, and compares what it answers and
// what it holds afterwards with testdata/story.golden.
func TestStory(t *testing.T) {
	script := read(t, "testdata/story.txt")
	var m serial
	var out strings.Builder
	var tokens []fence.Token
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		before := m
		answer, err := play(&m, line)
		if err != nil {
			answer = err.Error()
			if m.now = before.now; m != before {
				t.Errorf("%s: %q changed the model from %+v to %+v", line, answer, before, m)
			}
		}
		if token, ok := strings.CutPrefix(answer, "granted under token "); ok {
			n, _ := strconv.Atoi(token)
			tokens = append(tokens, fence.Token(n))
		}
		fmt.Fprintf(&out, "%-42s -> %-26s | %s\n", line, answer, &m)
	}
	for i, token := range tokens {
		if i > 0 && token <= tokens[i-1] {
			t.Errorf("tokens %v do not rise strictly", tokens)
		}
	}
	if len(tokens) != 4 {
		t.Errorf("%d grants; want 4", len(tokens))
	}
	if want := read(t, "testdata/story.golden"); out.String() != want {
		t.Errorf("the story went otherwise; got:\n%s\nwant:\n%s", out.String(), want)
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// String is the state as the golden file shows it.
func (m *serial) String() string {
	holder := m.holder
	if holder == "" {
		holder = "nobody"
	}
	return fmt.Sprintf("%s, token %d, until %d, value %q", holder, m.token, m.expiry/time.Second, m.value)
}

// play runs one line of a story.
func play(m *serial, line string) (string, error) {
	words := strings.Fields(line)
	seconds := func(text string) time.Duration {
		n, _ := strconv.Atoi(text)
		return time.Duration(n) * time.Second
	}
	var token fence.Token
	var ttl time.Duration
	value := ""
	for _, word := range words[3:] {
		if text, ok := strings.CutPrefix(word, "token="); ok {
			n, _ := strconv.Atoi(text)
			token = fence.Token(n)
		} else if text, ok := strings.CutPrefix(word, "ttl="); ok {
			ttl = seconds(text)
		} else {
			value = word
		}
	}
	if err := m.at(seconds(words[0])); err != nil {
		return "", err
	}
	owner := words[1]
	switch words[2] {
	case "acquire":
		granted, err := m.acquire(owner, ttl)
		return fmt.Sprintf("granted under token %d", granted), err
	case "renew":
		return "renewed", m.renew(owner, token, ttl)
	case "release":
		return "released", m.release(owner, token)
	case "write":
		return "written", m.write(owner, token, value)
	case "read":
		return "read " + m.value, nil
	}
	return "", errors.New("no such step")
}

// TestCoreRefinesSerial runs random histories of one name on the seed model and on the core in step: each
// grant is a session with one acquisition, an owner is its label, a write is verified work.
func TestCoreRefinesSerial(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		p := &pair{rt: rt, core: newCore(lease.NewID(), 0)}
		rt.Repeat(map[string]func(*rapid.T){
			"advance": func(rt *rapid.T) {
				d := time.Duration(rapid.IntRange(1, 8).Draw(rt, "by")) * time.Second
				if err := p.seed.at(p.seed.now + d); err != nil {
					rt.Fatal(err)
				}
				p.core.tick(p.seed.now)
			},
			"acquire": p.acquire,
			"renew":   p.renew,
			"release": p.release,
			"write":   p.write,
			"": func(rt *rapid.T) {
				info := p.core.info("n")
				if held := p.seed.holder != "" && p.seed.now < p.seed.expiry; info.Held != held || held && info.Remaining != p.seed.expiry-p.seed.now {
					rt.Fatalf("the seed says %v at %v, the core %+v", &p.seed, p.seed.now, info)
				}
			},
		})
	})
}

// pair is a seed model and a core in step.
type pair struct {
	rt     *rapid.T
	seed   serial
	core   *core
	grants []granted
}

type granted struct {
	owner string
	ttl   time.Duration
	claim fence.Claim
	of    fence.ID // its session
}

// agree demands that both did, or neither.
func agree(rt *rapid.T, doing string, seed, core error) {
	if (seed == nil) != (core == nil) {
		rt.Fatalf("%s: the seed says %v, the core %v", doing, seed, core)
	}
}

func (p *pair) acquire(rt *rapid.T) {
	g := granted{
		owner: rapid.SampledFrom([]string{"A", "B"}).Draw(rt, "owner"),
		ttl:   time.Duration(rapid.IntRange(1, 6).Draw(rt, "ttl")) * time.Second,
		of:    lease.NewID(),
	}
	token, seedErr := p.seed.acquire(g.owner, g.ttl)
	if _, err := p.core.open(lease.OpenRequest{ID: g.of, Owner: g.owner, TTL: g.ttl}); err != nil {
		rt.Fatal(err)
	}
	grants, coreErr := p.core.acquire(lease.AcquireRequest{Session: g.of, ID: lease.NewID(), Names: []string{"n"}})
	agree(rt, "acquire", seedErr, coreErr)
	if coreErr == nil {
		if g.claim = grants[0].Claim; g.claim.Token != token {
			rt.Fatalf("token %d on the seed, %d on the core", token, g.claim.Token)
		}
		p.grants = append(p.grants, g)
	}
}

// any draws one of the grants, the latest more often.
func (p *pair) any(rt *rapid.T) (granted, bool) {
	if len(p.grants) == 0 {
		return granted{}, false
	}
	back := rapid.IntRange(0, min(3, len(p.grants)-1)).Draw(rt, "grants ago")
	return p.grants[len(p.grants)-1-back], true
}

func (p *pair) renew(rt *rapid.T) {
	g, ok := p.any(rt)
	if !ok {
		return
	}
	seedErr := p.seed.renew(g.owner, g.claim.Token, g.ttl)
	r, coreErr := p.core.renew(lease.RenewRequest{Session: g.of})
	if coreErr == nil && p.core.endOf(p.core.acquisitions[g.claim.Acquisition]) != 0 {
		coreErr = fmt.Errorf("renewed for %v, a session whose lease is over", r.Remaining)
	}
	agree(rt, "renew", seedErr, coreErr)
}

func (p *pair) release(rt *rapid.T) {
	g, ok := p.any(rt)
	if !ok {
		return
	}
	seedErr := p.seed.release(g.owner, g.claim.Token)
	r, coreErr := p.core.release(lease.ReleaseRequest{Session: g.of, ID: g.claim.Acquisition, Names: []string{"n"}})
	if r.Already {
		coreErr = errNotHolder
	}
	agree(rt, "release", seedErr, coreErr)
}

func (p *pair) write(rt *rapid.T) {
	g, ok := p.any(rt)
	if !ok {
		return
	}
	if rapid.Bool().Draw(rt, "under another's token") { // owner and token are both compared
		other, _ := p.any(rt)
		if other.owner == g.owner {
			return // to the seed the two are one
		}
		g.owner, g.claim.Acquisition = other.owner, other.claim.Acquisition
	}
	agree(rt, "write", p.seed.write(g.owner, g.claim.Token, "v"), p.core.verify(g.claim))
}
