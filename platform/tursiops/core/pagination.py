"""Page numbers for lists, so that the console can show how many there are."""

from rest_framework import pagination, serializers
from rest_framework.request import Request


class PageNumberPagination(pagination.PageNumberPagination):
    page_size = 50
    page_size_query_param = "page_size"
    max_page_size = 500

    def get_page_size(self, request: Request) -> int:
        """Refuses what it can't serve; the library would take the default, or the largest, without a word."""
        given = request.query_params.get(self.page_size_query_param)
        if given is None:
            return self.page_size
        if not (given.isascii() and given.isdigit() and len(given) < 9 and 1 <= int(given) <= self.max_page_size):
            said = f"{given[:20]!r} is not a number from 1 to {self.max_page_size}."
            raise serializers.ValidationError({self.page_size_query_param: [said]})
        return int(given)
