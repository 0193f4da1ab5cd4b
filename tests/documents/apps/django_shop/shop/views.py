"""Its views."""

from django.http import JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from shop.models import Charge
from shop.tokens import signed_in


@csrf_exempt
@require_POST
@signed_in
def create_charge(request):
    charge = Charge.objects.create(user=request.user, cents=int(request.POST["cents"]))
    return JsonResponse({"charge": charge.pk}, status=201)
