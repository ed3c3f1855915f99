package fencehttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/fence"
)

// elsewhere is a server that notes the claims that it is sent.
func elsewhere(t *testing.T, seen *[]string) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*seen = append(*seen, strings.Join(r.Header.Values(ClaimHeader), ","))
		if to := r.URL.Query().Get("to"); to != "" {
			http.Redirect(w, r, to, http.StatusTemporaryRedirect)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func hostOf(t *testing.T, s *httptest.Server) string {
	t.Helper()
	u, err := url.Parse(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// TestTransportTellsOnlyItsHosts: the claim goes to the hosts that were named, not to others, and not along a redirect to another one.
func TestTransportTellsOnlyItsHosts(t *testing.T) {
	var atHome, away, friend []string
	home, other, trusted := elsewhere(t, &atHome), elsewhere(t, &away), elsewhere(t, &friend)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	client := &http.Client{Transport: &Transport{Base: base, Hosts: []string{hostOf(t, home), hostOf(t, trusted)}}}
	claim := claimed("r", 7)
	for _, to := range []string{
		home.URL, other.URL, home.URL + "?to=" + other.URL, home.URL + "?to=/again", home.URL + "?to=" + trusted.URL, trusted.URL,
	} {
		r, err := http.NewRequestWithContext(WithClaim(t.Context(), claim), http.MethodPut, to, strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		if to == other.URL {
			r.Header.Set(ClaimHeader, "by hand")
		}
		resp, err := client.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if r.Header.Get(ClaimHeader) == claim.String() {
			t.Errorf("%s: the caller's own request was changed", to)
		}
	}
	c := claim.String()
	for name, got := range map[string][2]string{
		"home":    {strings.Join(atHome, " "), strings.Join([]string{c, c, c, c, c}, " ")},
		"other":   {strings.Join(away, "|"), "|"},
		"trusted": {strings.Join(friend, "|"), "|" + c},
	} {
		if got[0] != got[1] {
			t.Errorf("%s was sent %q, want %q", name, got[0], got[1])
		}
	}
}

// TestTransportRefusals: a claim that is none is not sent, and a refusal can be told from the response whose body stays.
func TestTransportRefusals(t *testing.T) {
	s := open(t, Protect, Options{})
	host := hostOf(t, s.Server)
	base := &http.Transport{}
	defer base.CloseIdleConnections()
	do := func(ctx context.Context, find func(context.Context) (fence.Claim, bool)) (*http.Response, error) {
		client := &http.Client{Transport: &Transport{Base: base, Hosts: []string{strings.ToUpper(host)}, Claim: find}}
		r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.URL+"/r", strings.NewReader("body"))
		if err != nil {
			t.Fatal(err)
		}
		return client.Do(r)
	}
	resp, err := do(t.Context(), func(context.Context) (fence.Claim, bool) { return fence.Claim{}, true })
	if !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("no claim: %v", err)
	}
	if resp != nil {
		resp.Body.Close()
	}
	for _, c := range []struct {
		claim fence.Claim
		kind  error
	}{{claimed("r", 8), nil}, {claimed("r", 7), fence.ErrRefused}, {claimed("x", 9), fence.ErrForeign}} {
		resp, err := do(WithClaim(t.Context(), c.claim), nil)
		if err != nil {
			t.Fatal(err)
		}
		refusal := ErrorOf(resp)
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if (c.kind == nil) != (refusal == nil) || c.kind != nil && !errors.Is(refusal, c.kind) || err != nil || len(body) == 0 {
			t.Errorf("%+v: %v; %q, %v", c.claim, refusal, body, err)
		}
		var refused *fence.RefusedError
		if errors.As(refusal, &refused) && (refused.Claim != c.claim || refused.Newer != 8) {
			t.Errorf("%+v", refused)
		}
	}
}

// TestSendingIsNotServing: the claim under which a request is served is not sent on by itself.
func TestSendingIsNotServing(t *testing.T) {
	ctx := context.WithValue(t.Context(), claimKey{}, claimed("r", 7))
	if _, ok := ClaimToSend(ctx); ok {
		t.Error("the claim of a served request would be sent on")
	}
	if _, ok := ClaimFrom(WithClaim(t.Context(), claimed("r", 7))); ok {
		t.Error("a claim to send passes for one that was let in")
	}
}
