package kubernetes

import (
	"context"
	"encoding/json"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	networkingv1 "k8s.io/api/networking/v1"

	"github.com/sandbar-dev/sandbar"
)

// Right is what the daemon's account must be allowed in its namespace.
type Right struct {
	Group    string // of the API; "" is the core
	Resource string
	Verbs    []string
}

// Rights returns all that the driver uses. deploy/kubernetes grants it and nothing more.
func Rights() []Right {
	return []Right{
		{"", pods, []string{"create", "delete", "get", "list", "watch"}},
		{"", secrets, []string{"create", "delete"}},
		{coordinationv1.GroupName, leases, []string{"create", "delete", "get", "list", "update"}},
		{networkingv1.GroupName, policies, []string{"create", "delete"}},
	}
}

// relayRight is what it must also be allowed to reach pods through the API server. API servers
// before 1.35 ask only for "get".
var relayRight = Right{"", pods + "/exec", []string{"create", "get"}}

// missing returns the rights that the daemon's account lacks, each with only the verbs that it
// lacks.
func (a *api) missing(ctx context.Context, wanted []Right) ([]Right, error) {
	var lacks []Right
	for _, r := range wanted {
		r.Verbs = slices.Clone(r.Verbs)
		var failed error
		r.Verbs = slices.DeleteFunc(r.Verbs, func(verb string) bool {
			allowed, err := a.allowed(ctx, r.Group, r.Resource, verb)
			if err != nil {
				failed = err
			}
			return allowed
		})
		if failed != nil {
			return nil, failed
		}
		if len(r.Verbs) > 0 {
			lacks = append(lacks, r)
		}
	}
	return lacks, nil
}

// checkRights returns Unsupported, with all that is missing, if the account lacks rights. An
// account that may not ask for its rights is not refused: the requests themselves are.
func (a *api) checkRights(ctx context.Context, wanted []Right) error {
	lacks, err := a.missing(ctx, wanted)
	if err != nil && sandbar.CodeOf(err) != sandbar.Unsupported {
		return err
	}
	if len(lacks) == 0 {
		return nil
	}
	return &sandbar.Error{Code: sandbar.Unsupported, Field: "rights", Message: "the daemon's account may not " + rightsText(lacks) + " in the namespace " + sandbar.Quote(a.namespace, 70) + " of " + sandbar.Quote(a.host, 200),
		Fix: rightsFix(a.namespace, lacks)}
}

// rights returns what the driver uses as it is configured.
func (d *Driver) rights() []Right {
	if d.opt.reach == byExec {
		return append(Rights(), relayRight)
	}
	return Rights()
}

// rightsFix is the next step for missing rights.
func rightsFix(namespace string, lacks []Right) string {
	if lacks[0].Resource == relayRight.Resource { // the last one of rights, so it is the only one
		return "grant it create and get of pods/exec in the namespace " + namespace + ", or set the option " + optionReach + " to " + byAddress
	}
	return "grant it the Role of deploy/kubernetes/account.yaml in the namespace " + namespace
}

// allowed asks the API server whether the daemon's account has a right.
func (a *api) allowed(ctx context.Context, group, resource, verb string) (bool, error) {
	resource, sub, _ := strings.Cut(resource, "/")
	review := authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Namespace: a.namespace, Verb: verb, Group: group, Resource: resource, Subresource: sub}}}
	review.APIVersion, review.Kind = authorizationv1.SchemeGroupVersion.String(), "SelfSubjectAccessReview"
	body, err := json.Marshal(review)
	if err != nil {
		return false, sandbar.Errorf(sandbar.Internal, "a question about rights: %w", err)
	}
	var answer authorizationv1.SelfSubjectAccessReview
	err = a.call(ctx, "asking for the account's rights", func(ctx context.Context) error {
		raw, err := a.core.Post().AbsPath("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews").
			SetHeader("Content-Type", "application/json").SetHeader("Accept", "application/json").Body(body).Do(ctx).Raw()
		if err != nil {
			return err
		}
		return json.Unmarshal(raw, &answer)
	})
	return answer.Status.Allowed, err
}

// rightsText writes rights as "create pods, delete pods".
func rightsText(rights []Right) string {
	var all []string
	for _, r := range rights {
		for _, verb := range r.Verbs {
			all = append(all, verb+" "+r.Resource)
		}
	}
	return strings.Join(all, ", ")
}
