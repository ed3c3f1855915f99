package server

import (
	"context"

	"github.com/tenure-go/tenure/fence"
	v1 "github.com/tenure-go/tenure/internal/gen/tenure/v1"
	"github.com/tenure-go/tenure/internal/wire"
)

type marks struct{ store Marks }

// EnterMark is [Marks.EnterMark].
func (s *marks) EnterMark(ctx context.Context, m *v1.EnterMarkRequest) (*v1.EnterMarkResponse, error) {
	claim, err := wire.ParseClaim(m.GetClaim())
	return one(ctx, claim, err, func(ctx context.Context, claim fence.Claim) (*v1.EnterMarkResponse, error) {
		return &v1.EnterMarkResponse{}, s.store.EnterMark(ctx, m.GetResource(), claim)
	}, same, wire.Error)
}

// AdmitMark is [Marks.AdmitMark].
func (s *marks) AdmitMark(ctx context.Context, m *v1.AdmitMarkRequest) (*v1.AdmitMarkResponse, error) {
	claim, err := wire.ParseClaim(m.GetClaim())
	return one(ctx, claim, err, func(ctx context.Context, claim fence.Claim) (*v1.AdmitMarkResponse, error) {
		return &v1.AdmitMarkResponse{}, s.store.AdmitMark(ctx, m.GetResource(), claim)
	}, same, wire.Error)
}

// VerifyClaim is [Marks.VerifyClaim].
func (s *marks) VerifyClaim(ctx context.Context, m *v1.VerifyClaimRequest) (*v1.VerifyClaimResponse, error) {
	claim, err := wire.ParseClaim(m.GetClaim())
	return one(ctx, claim, err, func(ctx context.Context, claim fence.Claim) (*v1.VerifyClaimResponse, error) {
		return &v1.VerifyClaimResponse{}, s.store.VerifyClaim(ctx, claim)
	}, same, wire.Error)
}
