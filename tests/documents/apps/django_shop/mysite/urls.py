"""Its addresses."""

from django.urls import path
from shop.views import create_charge

urlpatterns = [path("charges", create_charge)]
