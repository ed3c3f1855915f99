package outboxhttp

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// The headers of a webhook.
const (
	HeaderID        = "Webhook-Id"
	HeaderTimestamp = "Webhook-Timestamp" // seconds since 1970
	HeaderSignature = "Webhook-Signature" // one for each secret, with spaces between them
)

const (
	secretPrefix     = "whsec_"
	minSecret        = 24 // bytes, as the specification has it
	maxSecret        = 64
	maxSecrets       = 8
	maxSignatures    = 32
	defaultTolerance = 5 * time.Minute
)

// Secret reads a secret in the specification's text form, whsec_ and base64, of 24 to 64 bytes. It returns an error matching [ErrInvalid] that does not tell the text.
func Secret(text string) ([]byte, error) {
	secret, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(text, secretPrefix))
	if err != nil {
		return nil, &InvalidError{"secret", "not base64"}
	}
	return secret, checkSecrets([][]byte{secret})
}

func checkSecrets(secrets [][]byte) error {
	if len(secrets) < 1 || len(secrets) > maxSecrets {
		return &InvalidError{"secrets", fmt.Sprintf("%d; want 1 to %d", len(secrets), maxSecrets)}
	}
	for _, s := range secrets {
		if len(s) < minSecret || len(s) > maxSecret {
			return &InvalidError{"secret", fmt.Sprintf("%d bytes; want %d to %d", len(s), minSecret, maxSecret)}
		}
	}
	return nil
}

func mac(secret []byte, id, timestamp string, body []byte) []byte {
	h := hmac.New(sha256.New, secret)
	_, _ = h.Write([]byte(id + "." + timestamp + "."))
	_, _ = h.Write(body)
	return h.Sum(nil)
}

// sign sets the headers of a webhook, with a signature by each of the secrets.
func sign(h http.Header, secrets [][]byte, id string, now time.Time, body []byte) {
	timestamp := strconv.FormatInt(now.Unix(), 10)
	all := make([]string, len(secrets))
	for i, s := range secrets {
		all[i] = "v1," + base64.StdEncoding.EncodeToString(mac(s, id, timestamp, body))
	}
	h.Set(HeaderID, id)
	h.Set(HeaderTimestamp, timestamp)
	h.Set(HeaderSignature, strings.Join(all, " "))
}

// Verifier tells a receiver what is genuine. It is a value that is not changed; safe for concurrent use.
type Verifier struct {
	Secrets   [][]byte         // any of which may have signed: while a secret is exchanged, the old one and the new
	Tolerance time.Duration    // between the sender's clock and this one; 0: 5 minutes
	Now       func() time.Time // nil: time.Now
}

// Verify returns the message's id if the body, exactly as it arrived, was signed with it by one of the secrets, and not too long ago; otherwise an error matching [ErrSignature], [ErrTimestamp] or, for secrets that are none, [ErrInvalid]. The caller
// bounds the body that it reads. A genuine request may be delivered again: what keeps its effect from being made twice is an inbox.
func (v *Verifier) Verify(h http.Header, body []byte) (id string, err error) {
	if err := checkSecrets(v.Secrets); err != nil {
		return "", err
	}
	id, timestamp := h.Get(HeaderID), h.Get(HeaderTimestamp)
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	given := strings.Fields(h.Get(HeaderSignature))
	// An id with a full stop could have been cut elsewhere: out of what was signed as "id.time.12.rest" one would make the id "id.time" and the time 12, and an inbox that goes by the id would take it for another message.
	if err != nil || id == "" || strings.Contains(id, ".") || len(given) > maxSignatures || len(h.Values(HeaderID)) > 1 || len(h.Values(HeaderTimestamp)) > 1 || !v.signed(given, id, timestamp, body) {
		return "", ErrSignature
	}
	now, tolerance := time.Now, v.Tolerance
	if v.Now != nil {
		now = v.Now
	}
	if tolerance == 0 {
		tolerance = defaultTolerance
	}
	if now().Sub(time.Unix(seconds, 0)).Abs() > tolerance {
		return "", ErrTimestamp
	}
	return id, nil
}

// signed compares each with each, and does not stop at the first: how long it takes says nothing.
func (v *Verifier) signed(given []string, id, timestamp string, body []byte) bool {
	found := false
	for _, secret := range v.Secrets {
		want := mac(secret, id, timestamp, body)
		for _, text := range given {
			coded, v1 := strings.CutPrefix(text, "v1,")
			got, err := base64.StdEncoding.DecodeString(coded)
			found = hmac.Equal(got, want) && v1 && err == nil || found
		}
	}
	return found
}
