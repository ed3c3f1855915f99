package client_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/tenure-go/tenure/lease"
)

// Whatever is between client and server says of a request that got through, and however much it sounds like a server: without a fault it is no answer of the authority.
func TestAProxysAnswerHasNoFault(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, code := range []int{400, 401, 403, 404, 408, 409, 412, 413, 429, 431, 499, 501, 503, 504} {
		for kind, body := range map[string]string{"text/html": "<html>no</html>", "application/json": `{"code": "unavailable", "message": "try later"}`, "application/proto": "", "text/plain": "upstream"} {
			var broken bool
			c := dial(t, roundTripper(func(req *http.Request) (*http.Response, error) {
				resp, err := http.DefaultTransport.RoundTrip(req)
				if !broken || err != nil {
					return resp, err
				}
				if err := resp.Body.Close(); err != nil {
					return nil, err
				}
				resp.StatusCode, resp.Status, resp.ContentLength = code, fmt.Sprint(code), int64(len(body))
				resp.Header = http.Header{"Content-Type": {kind}, "Retry-After": {"1"}}
				resp.Body = io.NopCloser(strings.NewReader(body))
				return resp, nil
			}), w.url)
			broken = true
			if _, err := open(t.Context(), c.Leases()); !errors.Is(err, lease.ErrUnknown) {
				t.Errorf("%d %s: %v; want ErrUnknown", code, kind, err)
			}
		}
	}
}
