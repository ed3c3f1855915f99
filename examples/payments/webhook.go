package payments

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"

	"github.com/tenure-go/tenure/fence"
	"github.com/tenure-go/tenure/operation"
)

// Webhook takes what the provider says late. It answers 204 once that is recorded, and 503 where it may not be, so that the provider says it again. Whoever is not the provider must be kept out before it: a signature or a client certificate is
// not shown here.
type Webhook struct {
	Operations operation.Store
	Logger     *slog.Logger
}

// notice is a webhook's body.
type notice struct {
	Op      string `json:"op"`
	Key     string `json:"key"`
	Attempt string `json:"attempt"`
	Status  int    `json:"status"`
	Reply   answer `json:"reply"`
}

// ServeHTTP is part of http.Handler.
func (h *Webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var n notice
	err := json.NewDecoder(io.LimitReader(r.Body, maxAnswer)).Decode(&n)
	resp, bad := n.response()
	if err = errors.Join(err, bad); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	rec, err := h.Operations.Respond(r.Context(), resp)
	switch {
	case err == nil:
	case errors.Is(err, operation.ErrStale) || errors.Is(err, operation.ErrDecided): // recorded all the same; to be told again would say no more
		if rec.ConflictCount > 0 {
			h.Logger.ErrorContext(r.Context(), "the provider contradicts a decision", "id", rec.ID, "state", rec.State.String(), "err", err)
		}
	case errors.Is(err, operation.ErrNotFound) || errors.Is(err, operation.ErrInvalid):
		h.Logger.ErrorContext(r.Context(), "a webhook of what nobody asked for", "id", resp.ID, "attempt", resp.Number, "err", err)
		http.Error(w, "nobody here asked for this", http.StatusUnprocessableEntity)
		return
	default: // the store was away, or it is unknown whether it is recorded
		http.Error(w, "say it again", http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusNoContent)
}

// response makes evidence of what the provider says: of the attempt that it names, else of the operation as a whole.
func (n *notice) response() (operation.Response, error) {
	number, err := int64(0), error(nil)
	if n.Attempt != "" {
		number, err = strconv.ParseInt(n.Attempt, 10, 64)
	}
	resp := operation.Response{ID: n.Key, Number: fence.Token(number)}
	if n.Status != http.StatusCreated {
		resp.Answer = operation.Answer{Known: operation.Refused, Final: n.Reply.Final, Reason: operation.Cut(n.Reply.Reason)}
		if n.Status != http.StatusPaymentRequired {
			err = errors.Join(err, fmt.Errorf("%w: a status of %d", errAnswer, n.Status))
		}
		return resp, err
	}
	var result any
	switch n.Op {
	case Charges().Name:
		result = paid(n.Reply)
	case Refunds().Name:
		result = refunded(n.Reply)
	default:
		err = errors.Join(err, fmt.Errorf("%w: an effect of %q", errAnswer, n.Op))
	}
	raw, bad := json.Marshal(result)
	resp.Answer = operation.Answer{Known: operation.Effective, Result: raw}
	return resp, errors.Join(err, bad)
}
