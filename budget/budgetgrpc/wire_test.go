package budgetgrpc

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/tenure-go/tenure/budget"
)

// TestTimeoutsOnTheWire: what other clients may send as grpc-timeout. Absent is the most, expired is refused, garbage is gRPC's own refusal; none is taken for another.
func TestTimeoutsOnTheWire(t *testing.T) {
	left := make(chan time.Duration, 1)
	w := start(t, anyTime(), func(ctx context.Context) error { left <- budget.From(ctx).RemainingTotal(); return nil })
	transport := &http.Transport{Protocols: new(http.Protocols)}
	transport.Protocols.SetUnencryptedHTTP2(true)
	defer transport.CloseIdleConnections()
	for name, c := range map[string]struct {
		timeouts []string
		status   string // "": the call was served
		least    time.Duration
	}{
		"absent": {nil, "", 45 * time.Second}, "positive": {[]string{"30S"}, "", 15 * time.Second}, "huge": {[]string{"99999999H"}, "", 45 * time.Second},
		"zero": {[]string{"0m"}, "4", 0}, "a nanosecond": {[]string{"1n"}, "4", 0},
		"negative": {[]string{"-5m"}, "13", 0}, "empty": {[]string{""}, "13", 0}, "no unit": {[]string{"5"}, "13", 0}, "garbage": {[]string{"soon"}, "13", 0},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+w.addr+"/grpc.health.v1.Health/Check", bytes.NewReader(make([]byte, 5)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header = http.Header{"Content-Type": {"application/grpc"}, "Te": {"trailers"}}
		if c.timeouts != nil {
			req.Header["Grpc-Timeout"] = c.timeouts
		}
		resp, err := transport.RoundTrip(req)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		got := resp.Header.Get("Grpc-Status") + resp.Trailer.Get("Grpc-Status")
		select {
		case d := <-left:
			if c.status != "" || got != "0" || d < c.least || d > time.Minute {
				t.Errorf("%s: served with %v, status %s", name, d, got)
			}
		default:
			if c.status == "" || got != c.status {
				t.Errorf("%s: not served, status %q, %v", name, got, resp.Header)
			}
		}
	}
}
